"""NumPy on sizes: eager's values and NumPy's own classes at every size, without a trace for each
where it can be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import symshape

SIZES = ((3, 5), (4, 7), (2, 6), (5, 3), (6, 9), (7, 11), (8, 4), (9, 13), (10, 8), (11, 12))

Program = Callable[[torch.Tensor], Any]

FREE: dict[str, Program] = {
    "root": lambda x: x / np.sqrt(x.shape[1]),
    "root as a result": lambda x: (x, np.sqrt(x.shape[1])),
    "logarithms": lambda x: (
        np.log(x.shape[1]),
        np.log2(x.shape[1] / 2),
        np.log10(x.shape[1]),
        np.log1p(x.shape[1]),
    ),
    "others": lambda x: (
        np.exp(-x.shape[1]),
        np.sin(x.shape[1]),
        np.tanh(x.shape[1]),
        np.expm1(1 / x.shape[1]),
    ),
    "ceiling of a half": lambda x: x[:, : int(np.ceil(x.shape[1] / 2))],
    "ceiling times integers": lambda x: x.long() * np.ceil(x.shape[1] / 2),
    "floor as a result": lambda x: (x, np.floor(x.shape[1] / 2)),
    "rounded to even": lambda x: x * np.rint(x.shape[1] / 3),
    "computed with": lambda x: (
        x,
        2 * np.sqrt(x.shape[1]) + 1,
        -np.sqrt(x.shape[0]),
        1 / np.sqrt(x.shape[0]),
    ),
    "power": lambda x: (x, np.sqrt(x.shape[1]) ** 3),
    "division": lambda x: (x, np.divide(1, x.shape[1]), np.true_divide(x.shape[0], x.shape[1])),
    "float of it": lambda x: (x, float(np.sqrt(x.shape[1]))),
    "a constant": lambda x: (
        x,
        x.shape[1] * np.float64(0.5),
        np.float64(0.5) * x.shape[1],
        np.float64(3) - x.shape[0],
    ),
    "quotient by zero": lambda x: (x, 1.5 * x.shape[1] / np.float64(2.0)),
    "elements": lambda x: x.reshape(np.prod(x.shape)),
    "elements as int": lambda x: x.reshape(int(np.prod(x.shape)), 1),
    "int of elements": lambda x: (x, int(np.prod(x.shape))),
    "sum of sizes": lambda x: x * np.sum(x.shape),
    "compared": lambda x: x * 2 if np.sqrt(x.shape[1]) > 100 else x,
    "compared from the left": lambda x: x * 2 if np.float64(100) < x.shape[1] else x,
    "class of a root": lambda x: x * 2 if isinstance(np.sqrt(x.shape[1]), np.floating) else x,
    "class of elements": lambda x: x * 2 if isinstance(np.prod(x.shape), int) else x,
    "type of elements": lambda x: x * 2 if type(np.prod(x.shape)) is np.int64 else x,
    "scalar": lambda x: x * 2 if np.isscalar(x.shape[1]) else x,
    "greater": lambda x: x.new_zeros(np.maximum(x.shape[1], 20)),
    "differences": lambda x: x.new_zeros(np.add(x.shape[0], 1), np.floor_divide(x.shape[1], 2)),
}
FIXED: dict[str, Program] = {
    "elements as a result": lambda x: (x, np.prod(x.shape)),
    "elements doubled": lambda x: (
        x,
        np.prod(x.shape) * 2,
        -np.prod(x.shape),
        2 * np.prod(x.shape),
    ),
    "floor of an integer": lambda x: (x, np.floor(x.shape[1])),
    "array": lambda x: torch.from_numpy(np.array(x.shape)) * 2,
    "tensor of an array": lambda x: torch.tensor(np.array(x.shape)),
    "array of a size": lambda x: torch.from_numpy(np.ones(2) * x.shape[1]),
    "kind of an array": lambda x: x * 2 if np.asarray(x.shape[1]).dtype.kind == "i" else x,
    "tensor of a ceiling": lambda x: torch.tensor(np.ceil(x.shape[1] / 2)),
    "mean": lambda x: (x, np.mean(x.shape), np.std(x.shape)),
    "clipped": lambda x: x[:, : int(np.clip(x.shape[1], 2, 6))],
    "rounded": lambda x: (x, np.round(x.shape[1] / 3, 1)),
    "text": lambda x: (x, repr(np.sqrt(x.shape[1])), f"{np.sqrt(x.shape[1]):.3f}"),
    "dtype": lambda x: x * 2 if np.sqrt(x.shape[1]).dtype == np.float64 else x,
    "item": lambda x: (x, np.sqrt(x.shape[1]).item()),
    "power of integers": lambda x: (x, np.power(x.shape[1], 2), np.float32(1.1) ** x.shape[1]),
    "power by name": lambda x: (x, np.power(np.float32(1.1), x.shape[1])),
    "unravelled": lambda x: (x, np.unravel_index(5, x.shape)),
    "integers": lambda x: (x, x.shape[1] * np.int64(2), np.int64(2) * x.shape[1]),
    "reduced": lambda x: (x, np.add.reduce(x.shape)),
}


TRUTHS: dict[str, Callable[[int, int], Any]] = {
    "greater": lambda b, n: np.sqrt(b) > 2,
    "negated": lambda b, n: ~(np.sqrt(b) > 1.5),
    "of a product": lambda b, n: ~(np.prod([b, n]) > 12),
    "of a maximum": lambda b, n: ~(np.maximum(b, n) > 5),
    "added": lambda b, n: (np.sqrt(b) > 1) + (np.sqrt(n) > 1),
    "differ": lambda b, n: (np.sqrt(b) > 2) ^ (np.sqrt(n) > 2),
    "beside a size": lambda b, n: ~(b > np.float64(3)),
    "by name": lambda b, n: ~np.greater(b, n),
    "beside a truth": lambda b, n: ((b > n) ^ np.True_, (b > n) << np.True_, np.True_ ^ (b > n)),
    "class": lambda b, n: (isinstance(np.ceil(b / 2) == 2, bool), (np.ceil(b / 2) == 2) is True),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_comparisons_give_truths_of_numpy(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        truth = TRUTHS[name](x.shape[0], x.shape[1])
        return (x * 3 if truth else x), truth

    assert _traces(program) <= len(SIZES)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor) and one.dtype is other.dtype and torch.equal(one, other)
        )
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and repr(one) == repr(other)


def _traces(fn: Program) -> int:
    compiled = symshape.compile(fn, fullgraph=True)
    for b, n in SIZES:
        for _ in range(2):
            x = torch.randn(b, n)
            assert _same(fn(x), compiled(x)), (b, n)
    return compiled.stats().traces


@pytest.mark.parametrize("name", FREE)
def test_one_program_for_all_sizes(name: str) -> None:
    assert _traces(FREE[name]) <= 4


@pytest.mark.parametrize("name", FIXED)
def test_sizes_that_numpy_needs(name: str) -> None:
    assert _traces(FIXED[name]) <= len(SIZES)


def test_a_division_by_nothing_is_no_error() -> None:
    def program(x: torch.Tensor) -> Any:
        return x, np.float64(x.shape[1]) / x.shape[0], np.sqrt(x.shape[1]) / (x.shape[0] - 3)

    compiled = symshape.compile(program, fullgraph=True)
    with np.errstate(all="ignore"):
        for b in (5, 4, 3, 6):
            x = torch.ones(b, 4)
            assert _same(program(x), compiled(x))


def test_a_logarithm_of_nothing_warns_when_it_runs() -> None:
    compiled = symshape.compile(lambda x: (x, np.log(x.shape[0])), fullgraph=True)
    assert [compiled(torch.ones(n))[1] for n in (3, 4, 5)] == [np.log(n) for n in (3, 4, 5)]
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert compiled(torch.ones(0))[1] == -np.inf
