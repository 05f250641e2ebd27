"""Equations: what solving one says holds at every solution, new symbols included."""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards.asking.reading import parse
from guards.domains.interval import Interval
from guards.facts.component import Component
from guards.facts.equations import solved
from guards.facts.learning import Learning
from guards.terms.arithmetic import symbol
from guards.terms.fold import evaluate
from guards.terms.term import Op, Term

NAMES = ("x", "y", "z")
RANGES = {"x": (-5, 8), "y": (0, 8), "z": (1, 5)}


def _solved(text: str) -> tuple[Term, Learning, tuple[Term, Term] | None]:
    equation = parse(f"{text} == 0")
    assert equation.op is Op.EQ, text
    learning = Learning(Component({symbol(name): RANGES[name] for name in NAMES}))
    return equation, learning, solved(learning, equation.args[0])


def _check(text: str) -> tuple[bool, int]:
    """Whether an equation was solved, and at how many of its solutions that was found right."""
    equation, learning, found = _solved(text)
    if found is None:
        return False, 0
    atom, replacement = found
    assert atom not in replacement.symbols
    compared = 0
    for values in product(*(range(lo, hi + 1) for lo, hi in RANGES.values())):
        point = dict(zip(NAMES, values, strict=True))
        if not evaluate(equation, point):
            continue
        for fresh, (factor, of, value) in learning.component.fresh.items():
            by = evaluate(factor, point)
            quotient, rest = divmod(evaluate(of, point) - evaluate(value, point), by)
            assert rest == 0, (text, point)
            point[fresh.name] = quotient
            assert quotient in Interval(*learning.component.ranges[fresh]), (text, point)
        assert evaluate(atom, point) == evaluate(replacement, point), (text, point)
        assert all(evaluate(condition, point) for condition in learning.pending), (text, point)
        compared += 1
    return True, compared


@pytest.mark.parametrize(
    "text",
    [
        "x - y - 3",
        "x - 4*y",
        "2*x - 3*y",
        "6*x + 10*y - 15*z - 1",
        "x % 4 - 1",
        "(3*x + y) % 7 - 2",
        "(x + y) % z",
        "(x - y) % (z + 2) - 1",
        "(2*x + 4*y) % 8 - 2",
        "x // 3 - y",
        "max(x, y) - z",
        "min(x, 2*y) - z",
        "(x if x > y else z) - 2",
        "3*x*y - 2*z",
    ],
)
def test_solutions_satisfy_what_was_drawn(text: str) -> None:
    found, compared = _check(text)
    assert not found or compared > 0


def test_random_linear_equations() -> None:
    rng = random.Random(51)
    solved_ones = compared = 0
    for _ in range(60):
        a, b, c, d = (rng.randint(-7, 7) for _ in range(4))
        text = rng.choice(
            (f"{a}*x + {b}*y + {c}*z + {d}", f"({a}*x + {b}*y + {c}) % {rng.randint(2, 9)} - 1")
        )
        if parse(f"{text} == 0").op is not Op.EQ:
            continue
        found, points = _check(text)
        solved_ones += found
        compared += points
    assert solved_ones > 30
    assert compared > 800


def test_what_has_no_solution_is_seen() -> None:
    _, learning, found = _solved("x % 4 - 5")
    assert found is None
    assert learning.component.contradictory
    _, learning, found = _solved("x*y - z*z - 1")
    assert found is None
    assert not learning.component.contradictory
