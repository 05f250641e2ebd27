"""Bits: each operation on all small integers, negative ones included, against Python's own."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest

from guards.terms import bitwise
from guards.terms.arithmetic import const, symbol
from guards.terms.fold import evaluate
from guards.terms.term import Term

x, y = symbol("x"), symbol("y")
OPERATIONS: list[tuple[Callable[[Term, Term], Term | None], Callable[[int, int], int]]] = [
    (bitwise.both, operator.and_),
    (bitwise.either, operator.or_),
    (bitwise.differing, operator.xor),
]


@pytest.mark.parametrize(("made", "wanted"), OPERATIONS)
def test_every_mask_and_every_value(
    made: Callable[[Term, Term], Term | None], wanted: Callable[[int, int], int]
) -> None:
    for mask in [*range(-20, 21), 0b110011, ~0b110011, 255, -256]:
        one, other = made(x, const(mask)), made(const(mask), x)
        assert one is other
        assert one is not None
        for value in [*range(-40, 41), 1 << 70, -(1 << 70) - 3]:
            assert evaluate(one, {"x": value}) == wanted(value, mask), (value, mask)


@pytest.mark.parametrize(("made", "wanted"), OPERATIONS)
def test_what_has_no_formula(
    made: Callable[[Term, Term], Term | None], wanted: Callable[[int, int], int]
) -> None:
    assert made(x, y) is None
    assert made(x, x) is const(0) if made is bitwise.differing else made(x, x) is x
    runs = int("01" * bitwise.MOST_RUNS, 2)
    assert made(x, const(runs)) is not None
    assert made(x, const(runs << 2 | 1)) is None
