"""Ranges: what a bound says of the parts of a term holds at every value within it."""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards.asking.reading import parse
from guards.domains.interval import Interval
from guards.domains.interval_arithmetic import Pair
from guards.facts.component import Component
from guards.facts.learning import Learning
from guards.facts.ranges import add_row, narrow, narrow_inside, propagate_row
from guards.terms.arithmetic import symbol
from guards.terms.fold import evaluate

NAMES = ("x", "y", "z")


def _learning(pair: Pair) -> Learning:
    return Learning(Component({symbol(name): pair for name in NAMES}))


@pytest.mark.parametrize(
    "text", ["x // 3", "min(x, y)", "max(x, y, z)", "x*y", "x*x", "x*y*z", "x % 4"]
)
@pytest.mark.parametrize("pair", [(None, 6), (2, None), (1, 8), (3, 3)])
@pytest.mark.parametrize("declared", [(0, 7), (1, 7), (-4, 4)])
def test_operands_of_what_was_narrowed(text: str, pair: Pair, declared: tuple[int, int]) -> None:
    learning = _learning(declared)
    monomial = parse(text)
    narrow_inside(learning, monomial, pair)
    narrow(learning, monomial, pair)
    lo, hi = pair
    inside = 0
    for values in product(range(declared[0], declared[1] + 1), repeat=3):
        point = dict(zip(NAMES, values, strict=True))
        value = evaluate(monomial, point)
        if (lo is not None and value < lo) or (hi is not None and value > hi):
            continue
        inside += 1
        assert not learning.component.contradictory
        assert all(evaluate(condition, point) for condition in learning.pending), (
            point,
            learning.pending,
        )
        for atom, known in learning.component.ranges.items():
            assert evaluate(atom, point) in Interval(*known), (atom, point)
    assert inside or learning.component.contradictory or declared == (-4, 4)


def test_rows_narrow_their_monomials() -> None:
    rng = random.Random(61)
    narrowed = 0
    for _ in range(150):
        learning = _learning((0, 6))
        a, b, c, d = rng.randint(1, 4), rng.randint(-4, 4), rng.randint(-4, 4), rng.randint(-12, 4)
        term = parse(f"{a}*x + {b}*y + {c}*z + {d}")
        equation = rng.random() < 0.3
        add_row(learning, term, equation)
        for form in list(learning.component.rows):
            propagate_row(learning, form)
        points = [dict(zip(NAMES, values, strict=True)) for values in product(range(7), repeat=3)]
        inside = [
            p for p in points if (evaluate(term, p) == 0 if equation else evaluate(term, p) <= 0)
        ]
        if learning.component.contradictory:
            assert not inside
            continue
        for name in NAMES:
            lo, hi = learning.component.bounds(symbol(name))
            assert lo is not None
            assert hi is not None
            assert all(lo <= point[name] <= hi for point in inside)
            narrowed += (lo, hi) != (0, 6)
    assert narrowed > 60


def test_two_bounds_that_meet_are_an_equation() -> None:
    learning = _learning((0, 9))
    add_row(learning, parse("x + y - 5"), False)
    assert learning.component.rows
    add_row(learning, parse("5 - x - y"), False)
    assert not learning.component.rows
    assert learning.pending == [parse("x + y == 5")]
    add_row(learning, parse("2*x + 2*z - 5"), True)
    assert learning.component.contradictory
