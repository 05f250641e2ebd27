"""``max``, ``min`` and ``sorted`` of sizes: one program, whichever size is the greatest."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.tracing.intercept.python_numbers.operators import is_term, plain_sorted

Rows = list[torch.Tensor]
Program = Callable[[Rows], torch.Tensor]


def batches(count: int, of: int = 3, seed: int = 0) -> list[Rows]:
    rng = random.Random(seed)
    return [[torch.randn(rng.randint(0, 9), 2) for _ in range(of)] for _ in range(count)]


def padded(ts: Rows) -> torch.Tensor:
    longest = max(t.shape[0] for t in ts)
    return torch.stack([F.pad(t, (0, 0, 0, longest - t.shape[0])) for t in ts])


def cut(ts: Rows) -> torch.Tensor:
    shortest = min([len(t) for t in ts])
    return torch.stack([t[:shortest] for t in ts]).cumsum(1)


PROGRAMS: dict[str, Program] = {
    "a generator": padded,
    "a list": cut,
    "arguments": lambda ts: torch.zeros(max(*[len(t) for t in ts])),
    "with a constant": lambda ts: torch.zeros(max(len(ts[0]), 4, len(ts[1]))),
    "a map": lambda ts: torch.zeros(max(map(len, ts)), min(map(len, ts))),
    "a default": lambda ts: torch.zeros(max((len(t) for t in ts), default=1)),
    "values of a dictionary": lambda ts: torch.zeros(
        max({i: len(t) for i, t in enumerate(ts)}.values())
    ),
    "shapes": lambda ts: torch.zeros(
        [max(sizes) for sizes in zip(*(t.shape for t in ts), strict=True)]
    ),
    "reduce": lambda ts: torch.zeros(reduce(max, [len(t) for t in ts])),
    "sorted": lambda ts: torch.zeros(sorted(len(t) for t in ts)),
    "sorted, the greatest first": lambda ts: torch.zeros(
        sorted([len(t) for t in ts], reverse=True)[:2]
    ),
    "NumPy": lambda ts: torch.zeros(
        int(np.max([len(t) for t in ts])), int(np.min([len(t) for t in ts]))
    ),
    "arithmetic": lambda ts: ts[0] * max(len(t) for t in ts) / (1 + min(len(t) for t in ts) ** 2),
    "max of min": lambda ts: torch.zeros(
        max(min(len(ts[0]), len(ts[1])), min(len(ts[1]), len(ts[2])))
    ),
}


def traces(program: Program, calls: Sequence[Rows]) -> int:
    compiled = symshape.compile(program, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", symshape.FallbackWarning)
        for call in calls:
            torch.testing.assert_close(compiled(call), program(call), rtol=0, atol=0)
    return symshape.compiled_of(compiled).stats().traces


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program(name: str) -> None:
    assert traces(PROGRAMS[name], batches(25)) <= (2 if name == "a list" else 1)


def test_many_batches_of_eight() -> None:
    assert traces(padded, batches(60, of=8)) == 1


def test_who_is_the_longest_is_another_question() -> None:
    """With ``key=`` the answer is an object, not a number: the sizes are compared."""
    longest: Program = lambda ts: max(ts, key=len) * 2  # noqa: E731
    assert 1 < traces(longest, batches(25)) <= 4


def test_a_size_and_a_constant_are_compared() -> None:
    """The terms of a program stay simple where one guard makes them so."""
    at_least: Program = lambda ts: torch.zeros(max(len(ts[0]), 4))  # noqa: E731
    assert traces(at_least, batches(25)) == 2


def test_lists_that_no_term_says() -> None:
    assert not any(map(is_term, ([], [1], [1, 2], [2.0, 1], ["a", "b"], [True, 2])))
    assert plain_sorted("cab") == ["a", "b", "c"]
    assert plain_sorted({3: 0, 1: 0}, key=lambda each: -each) == [3, 1]
    assert plain_sorted(iter([2, 1])) == [1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: max(),
        lambda: max([]),
        lambda: max(1, default=2),
        lambda: min(i for i in ()),
        lambda: sorted(3),
    ],
)
def test_errors_are_pythons(wrong: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, ValueError)) as eager:
        wrong()

    def program(x: torch.Tensor) -> torch.Tensor:
        wrong()
        return x

    with pytest.raises(type(eager.value)) as ours:
        symshape.compile(program)(torch.ones(2))
    assert str(ours.value) == str(eager.value)


def test_an_iterator_is_read_once() -> None:
    def program(ts: Rows) -> torch.Tensor:
        sizes = iter([len(t) for t in ts])
        return torch.zeros(max(sizes) + sum(sizes))

    assert traces(program, batches(10)) == 1
