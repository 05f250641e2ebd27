"""The simplex: infeasible rows have no solution, and the point it reaches is within all bounds."""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards.deciders.linear import OutOfBudget, Tableau
from guards.domains.linear_form import bounded
from guards.terms import arithmetic
from guards.terms.arithmetic import linear, symbol
from guards.terms.term import Op

NAMES = ("x", "y", "z")
SYMBOLS = [symbol(name) for name in NAMES]


def _random_rows(rng: random.Random) -> list[tuple[tuple[int, ...], int | None, int | None]]:
    rows = []
    for _ in range(rng.randint(1, 5)):
        coefficients = tuple(rng.randint(-4, 4) for _ in NAMES)
        middle = rng.randint(-12, 12)
        rows.append(
            (
                coefficients,
                rng.choice([None, middle]),
                rng.choice([None, middle + rng.randint(0, 3)]),
            )
        )
    return rows


def test_infeasible_rows_have_no_solution() -> None:
    rng = random.Random(3)
    infeasible = feasible = 0
    for _ in range(1200):
        tableau = Tableau(500)
        box = [(rng.randint(-4, 0), rng.randint(0, 4)) for _ in NAMES]
        for term, pair in zip(SYMBOLS, box, strict=True):
            tableau.index[term] = tableau.variable(pair)
        rows = _random_rows(rng)
        possible = True
        for coefficients, lo, hi in rows:
            term = linear(0, dict(zip(SYMBOLS, coefficients, strict=True)))
            if term.op is Op.CONST:
                possible = possible and (lo is None or lo <= 0) and (hi is None or hi >= 0)
                continue
            constant, items = arithmetic.split(term)
            form, (low, high) = bounded(constant, items, lo, hi)
            possible = tableau.restrict(tableau.form(form), low, high) and possible
        possible = possible and tableau.feasible()
        solved = any(
            all(
                (lo is None or lo <= value) and (hi is None or value <= hi)
                for coefficients, lo, hi in rows
                for value in [sum(c * v for c, v in zip(coefficients, point, strict=True))]
            )
            for point in product(*[range(lo, hi + 1) for lo, hi in box])
        )
        assert possible or not solved
        if possible:
            feasible += 1
            for coefficients, lo, hi in rows:  # the point reached is within all bounds, exactly
                at = [tableau.at(tableau.index[s]) for s in SYMBOLS]
                common = 1
                for _, denominator in at:
                    common *= denominator
                total = sum(
                    c * n * (common // d) for c, (n, d) in zip(coefficients, at, strict=True)
                )
                assert lo is None or lo * common <= total
                assert hi is None or total <= hi * common
        else:
            infeasible += 1
    assert feasible > 200
    assert infeasible > 100


def test_copies_are_independent() -> None:
    x, y, _ = SYMBOLS
    tableau = Tableau(100)
    for term in (x, y):
        tableau.index[term] = tableau.variable((0, 10))
    form = tableau.form(((x, 1), (y, 1)))
    assert tableau.restrict(form, 5, None)
    assert tableau.feasible()
    copy = tableau.copy()
    assert copy.restrict(form, 21, None)
    assert not copy.feasible()
    assert tableau.feasible()


def test_the_budget_is_kept() -> None:
    tableau = Tableau(0)
    x, y, _ = SYMBOLS
    for term in (x, y):
        tableau.index[term] = tableau.variable((0, 10))
    tableau.restrict(tableau.form(((x, 1), (y, -1))), 3, 5)
    with pytest.raises(OutOfBudget):
        tableau.feasible()
