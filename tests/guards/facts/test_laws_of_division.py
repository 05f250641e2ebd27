"""Laws of division: polynomial division, and quotients that the ranges fix, against all values."""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards.asking.assumptions import facts_from
from guards.asking.reading import parse
from guards.errors import Contradiction, ParseError
from guards.facts.laws_of_division import divide, known_quotient
from guards.terms.fold import evaluate
from tests.strategies import integer


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient", "rest"),
    [
        ("x*y + x + 1", "y + 1", "x", "1"),
        ("x*x - 1", "x + 1", "x - 1", "0"),
        ("x*z + y*z + x", "x + y", "z", "x"),
        ("6*x*y + 3*x", "2*y + 1", "3*x", "0"),
        ("x + 1", "y", "0", "x + 1"),
        ("x", "4", "0", "x"),
    ],
)
def test_polynomial_division(dividend: str, divisor: str, quotient: str, rest: str) -> None:
    found = divide(parse(dividend), parse(divisor))
    assert found == (parse(quotient), parse(rest))


def test_division_leaves_what_it_says() -> None:
    """``dividend == divisor*quotient + rest`` as polynomials, at every point."""
    rng = random.Random(41)
    divided = 0
    for _ in range(400):
        try:
            dividend = parse(
                f"({integer(rng, depth=2)})*({integer(rng, depth=1)}) + {integer(rng, depth=1)}"
            )
            divisor = parse(integer(rng, depth=1))
        except ParseError:
            continue
        if divisor is parse("0"):
            continue
        quotient, rest = divide(dividend, divisor)
        divided += quotient is not parse("0")
        for _ in range(4):
            point = {name: rng.randint(-9, 9) for name in ("x", "y", "z")}
            try:
                whole = evaluate(dividend, point)
                assert whole == evaluate(divisor, point) * evaluate(quotient, point) + evaluate(
                    rest, point
                )
            except ZeroDivisionError:
                continue
    assert divided > 60


@pytest.mark.parametrize(
    ("dividend", "assumed", "value"),
    [
        ((0, 3), [], 0),
        ((-3, -1), [], -1),
        ((0, 5), [], None),
        ((-6, -1), [], None),
        ((0, None), [], None),
        ((None, -1), [], None),
        ((-1, 1), [], None),
        ((0, None), ["x < y"], 0),
        ((0, None), ["x >= y", "x < 2*y"], 1),
        ((None, -1), ["x + y >= 0"], -1),
    ],
)
def test_quotients_by_a_symbol(
    dividend: tuple[int | None, int | None], assumed: list[str], value: int | None
) -> None:
    """By something from 5 on: from the dividend's range where it is short, from what ties the two
    together else.
    """
    component = facts_from({"x": dividend, "y": (5, None)}, assumed).component(parse("x + y"))
    assert known_quotient(component, parse("x"), parse("y")) == value


def test_known_quotients_are_those_of_every_value() -> None:
    rng = random.Random(42)
    found = 0
    for _ in range(600):
        ranges = {
            name: tuple(sorted((rng.randint(-5, 9), rng.randint(-5, 9)))) for name in ("x", "y")
        }
        text = rng.choice(("x", "x - y", "x + y", "2*x + 1", "x - 7"))
        by = rng.choice(("y", "y + 6", "x + y + 12", "8", "5"))
        assumed = rng.choice(([], ["x < y"], ["x + y >= 3"]))
        try:
            facts = facts_from({name: (lo, hi) for name, (lo, hi) in ranges.items()}, assumed)
        except Contradiction:
            continue
        dividend, divisor = parse(text), parse(by)
        value = known_quotient(facts.component(dividend // divisor), dividend, divisor)
        if value is None:
            continue
        found += 1
        for x, y in product(*(range(lo, hi + 1) for lo, hi in ranges.values())):
            point = {"x": x, "y": y}
            if all(evaluate(condition, point) for condition in facts.conditions) and evaluate(
                divisor, point
            ):
                assert evaluate(dividend, point) // evaluate(divisor, point) == value, (
                    facts,
                    text,
                    by,
                    point,
                )
    assert found > 50
