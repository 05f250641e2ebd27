"""``range`` over sizes: the numbers of eager, in a program for each number of laps."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import symshape
from symshape.tracing.intercept.python_numbers.builtins import SymbolicRange


def _chunks(x: torch.Tensor) -> Any:
    return torch.stack([x[i : i + 8].sum() for i in range(0, x.shape[0], 8)])


def _last_three(x: torch.Tensor) -> Any:
    n = x.shape[0]
    for i in range(n, n + 3):
        x = x + i
    return x


def _downwards(x: torch.Tensor) -> Any:
    r = range(x.shape[0] - 1, -1, -16)
    return x * len(r) + sum(r) + r[0]


def _windows(x: torch.Tensor) -> Any:
    n = x.shape[0]
    return [x[i:j] for i, j in zip(range(0, n, 16), range(16, n + 16, 16), strict=True)]


def _listed(x: torch.Tensor) -> Any:
    return x[list(range(0, x.shape[0], 16))], x[range(0, x.shape[0], 16)]  # type: ignore[call-overload]


def _kinds(x: torch.Tensor) -> Any:
    r = range(0, x.shape[0], 16)
    return x * 2 if isinstance(r, range) and type(r) is range else x * 3


def _asked(x: torch.Tensor) -> Any:
    r = range(0, x.shape[0], 16)
    found = {r: 2, range(0): 3}
    both = [
        r.stop,
        r.start,
        r.step,
        16 in r,
        r == range(0, 32, 16),
        len(r[1:]),
        next(reversed(r)),
        r.index(0),
    ]
    return x * found[r] + sum(both) + r.count(16)


def _truth(x: torch.Tensor) -> Any:
    return x * 2 if range(16, x.shape[0], 16) else x * 3


def _text(x: torch.Tensor) -> Any:
    return x * len(str(range(0, x.shape[0], 16)))


@pytest.mark.parametrize(
    "fn",
    [_chunks, _last_three, _downwards, _windows, _listed, _kinds, _asked, _truth, _text],
    ids=lambda fn: fn.__name__,
)
def test_as_in_eager(fn: Callable[..., Any]) -> None:
    fast = symshape.compile(fn, fullgraph=True)
    for n in (9, 12, 17, 16, 15, 1, 33, 40, 32, 31, 11):
        x = torch.arange(n).float()
        for expected, got in zip(
            pytree.tree_leaves(fn(x)), pytree.tree_leaves(fast(x)), strict=True
        ):
            assert torch.equal(expected, got)


@pytest.mark.parametrize(
    ("fn", "most"), [(_chunks, 3), (_last_three, 2), (_downwards, 3), (_windows, 3), (_kinds, 3)]
)
def test_a_program_for_each_number_of_laps(fn: Callable[..., Any], most: int) -> None:
    fast = symshape.compile(fn, fullgraph=True)
    for n in (9, 12, 16, 15, 10, 11, 14, 13, 25, 26, 27, 31, 30):
        fast(torch.arange(n).float())
    assert fast.stats().traces <= most


def test_a_range_behaves_as_pythons() -> None:
    rng = random.Random(0)
    for _ in range(500):
        start, stop, step = (
            rng.randint(-9, 9),
            rng.randint(-9, 9),
            rng.choice((-3, -2, -1, 1, 2, 3)),
        )
        wanted = range(start, stop, step)
        ours = SymbolicRange(start, stop, step)
        assert (list(ours), len(ours), bool(ours)) == (list(wanted), len(wanted), bool(wanted))
        assert (hash(ours), ours, repr(ours)) == (hash(wanted), wanted, repr(wanted))
        assert (ours != wanted, ours == 3) == (False, False)
        part = slice(
            *(rng.choice((None, *range(-9, 10))) for _ in range(2)),
            rng.choice((None, -2, -1, 1, 2)),
        )
        assert list(ours[part]) == list(wanted[part])
        if wanted:
            assert (ours[-1], ours[0]) == (wanted[-1], wanted[0])
        with pytest.raises(IndexError):
            ours[len(wanted)]


def test_errors_are_pythons() -> None:
    def never(x: torch.Tensor) -> Any:
        return [x for _ in range(0, x.shape[0], 0)]

    def fractions(x: torch.Tensor) -> Any:
        return [x for _ in range(0, x.shape[0], 0.5)]  # type: ignore[arg-type]

    for fn, kind in ((never, ValueError), (fractions, TypeError)):
        fast = symshape.compile(fn, dynamic=True)
        with pytest.raises(kind):
            fast(torch.ones(3))
