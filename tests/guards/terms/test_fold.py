"""Folding: each part once, at any depth; values, and substitution that means what it says."""

from __future__ import annotations

import random

import pytest

from guards.asking.reading import parse
from guards.terms import arithmetic, boolean
from guards.terms.arithmetic import symbol
from guards.terms.extremes import maximum
from guards.terms.fold import evaluate, fold, substitute
from guards.terms.term import Term
from tests.strategies import condition

x, y = symbol("x"), symbol("y")


def test_substitution_commutes_with_evaluation() -> None:
    rng = random.Random(3)
    compared = 0
    for _ in range(1500):
        try:
            term = parse(condition(rng))
            replaced = substitute(term, {x: 2 * y + 1, y: x // 3})
        except (ValueError, ZeroDivisionError):
            continue
        point = {name: rng.randint(-9, 20) for name in ("x", "y", "z")}
        moved = {**point, "x": 2 * point["y"] + 1, "y": point["x"] // 3}
        try:
            assert evaluate(replaced, point) == evaluate(term, moved)
            compared += 1
        except ZeroDivisionError:
            continue
    assert compared > 800


def test_substitution_replaces_whole_terms_and_all_at_once() -> None:
    assert substitute(x // 2 + x, {x // 2: y}) is x + y
    assert substitute(x + 2 * y, {x: y, y: x}) is y + 2 * x
    assert substitute(x + 1, {y: x}) is x + 1


def test_each_part_is_folded_once() -> None:
    term = arithmetic.ZERO + x
    for _ in range(60):
        term = maximum(term // 3, term % 5)
    visits = 0

    def count(part: Term, operands: list[int]) -> int:
        nonlocal visits
        visits += 1
        return 0

    fold(term, count)
    assert visits <= 60 * 4 + 3


def test_deep_terms_fold() -> None:
    term = x
    for step in range(2000):
        term = maximum(term, y - step) // (y + 2)
    assert evaluate(term, {"x": 10**9, "y": 1}) == evaluate(
        substitute(term, {x: x + 0 * y}), {"x": 10**9, "y": 1}
    )
    assert fold(term, lambda part, operands: max(operands, default=0) + 1) > 2000


def test_missing_values_and_zero_divisors_are_errors() -> None:
    with pytest.raises(KeyError):
        evaluate(x + y, {"x": 1})
    with pytest.raises(ZeroDivisionError):
        evaluate(x // y, {"x": 1, "y": 0})


@pytest.mark.parametrize("deep", [False, True])
def test_a_part_that_decides_is_enough(deep: bool) -> None:
    """An `and`, an `or` and an `ite` do not need the part that divides by zero, in whatever order
    the parts stand.
    """
    tail = x
    if deep:
        for step in range(80):
            tail = maximum(tail, x - step) // (x + 2)
    either = boolean.or_(boolean.eq(y, 0), boolean.ge(tail // y, 1), boolean.ge(tail % y, 9))
    both = boolean.and_(boolean.ne(y, 0), boolean.ge(tail // y, 1))
    choice = boolean.ite(boolean.eq(y, 0), 7, tail // y)
    at = {"x": 5, "y": 0}
    assert evaluate(either, at) is True
    assert evaluate(both, at) is False
    assert evaluate(choice, at) == 7
    with pytest.raises(ZeroDivisionError):
        evaluate(boolean.or_(boolean.eq(y, 1), boolean.ge(tail // y, 1)), at)
    with pytest.raises(ZeroDivisionError):
        evaluate(boolean.and_(boolean.eq(y, 0), boolean.ge(tail // y, 1)), at)
