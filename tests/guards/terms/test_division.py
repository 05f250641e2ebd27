"""Floor division and remainder: canonical forms, and Python's values for all signs."""

from __future__ import annotations

from itertools import product

import pytest

from guards.asking.reading import parse
from guards.terms.arithmetic import const, symbol
from guards.terms.division import floordiv, mod
from guards.terms.fold import evaluate
from guards.terms.term import Term

x, y = symbol("x"), symbol("y")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(x // 2) // 3", "x // 6"),
        ("(x // 2 + 1) // 3", "(x + 2) // 6"),
        ("x % 12 % 4", "x % 4"),
        ("(8*x + 5) // 8", "x"),
        ("(6*x) // 4", "(3*x) // 2"),
        ("(2*x*y) // (4*y)", "x // 2"),
        ("(x*y) % (x*z)", "x*(y % z)"),
        ("x % -5", "-((-x) % 5)"),
        ("x // -3", "(-x) // 3"),
    ],
)
def test_equal_terms_are_one_object(one: str, other: str) -> None:
    assert parse(one) is parse(other)


@pytest.mark.parametrize(
    "divisor", [const(-6), const(-1), const(1), const(4), y, 2 * y, y + 1, -3 * y, y * y]
)
@pytest.mark.parametrize(
    "dividend",
    [
        x,
        6 * x,
        6 * x + 5,
        -4 * x + 3,
        x * y,
        6 * x * y + 4 * y,
        x // 3,
        2 * (x // 3) + 1,
        x % 12,
        3 * (x % 8) - 1,
        x - y,
    ],
)
def test_quotients_and_remainders_are_pythons(dividend: Term, divisor: Term) -> None:
    quotient, rest = floordiv(dividend, divisor), mod(dividend, divisor)
    for at_x, at_y in product(range(-14, 15), range(-4, 5)):
        point = {"x": at_x, "y": at_y}
        by = evaluate(divisor, point)
        if by:
            a = evaluate(dividend, point)
            try:
                assert (evaluate(quotient, point), evaluate(rest, point)) == divmod(a, by), point
            except ZeroDivisionError:  # a term speaks of values at which it is defined
                assert point["y"] in (0, -1)


def test_by_zero() -> None:
    with pytest.raises(ZeroDivisionError):
        x // 0
    with pytest.raises(ZeroDivisionError):
        mod(x, 0)
    with pytest.raises(ZeroDivisionError):
        mod(x, y - y)
