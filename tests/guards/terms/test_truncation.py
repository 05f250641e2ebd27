"""Division that rounds towards zero: C's results, a normal form, and bits beside it."""

from __future__ import annotations

import random

import pytest

from guards.asking.reading import parse
from guards.errors import ParseError
from guards.terms.fold import evaluate
from tests.oracles import SPACE


def test_truncation_follows_c() -> None:
    for a in range(-9, 10):
        for b in (-4, -3, -1, 1, 2, 5):
            values = {"x": a, "y": b}
            assert evaluate(parse("truncdiv(x, y)"), values) == int(a / b)
            assert evaluate(parse("truncmod(x, y)"), values) == a - b * int(a / b)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("truncdiv(-x, y)", "-truncdiv(x, y)"),
        ("truncdiv(x, -y)", "-truncdiv(x, y)"),
        ("truncdiv(x*z, -3*y*z)", "truncdiv(-x, 3*y)"),
        ("truncdiv(truncdiv(x, y), z)", "truncdiv(x, y*z)"),
        ("truncdiv(2*truncdiv(x, 2), 6)", "truncdiv(x, 6)"),
        ("truncdiv(truncmod(x, 6*y), -3*y)", "-truncmod(truncdiv(x, 3*y), 2)"),
        ("truncmod(-x, y)", "-truncmod(x, y)"),
        ("truncmod(x, -y)", "truncmod(x, y)"),
        ("truncmod(x*z, 2*y*z)", "z*truncmod(x, 2*y)"),
        ("truncmod(truncmod(x, 6*y), 3*y)", "truncmod(x, 3*y)"),
        ("truncmod(2*truncdiv(truncmod(x, 20), 2), 4)", "2*truncdiv(truncmod(x, 4), 2)"),
        ("truncdiv(x - y, x - y) + truncmod(y - x, x - y)", "1"),
        ("truncdiv(6*x*y, -3*y)", "-2*x"),
    ],
)
def test_truncation_has_a_normal_form(text: str, same: str) -> None:
    assert parse(text) is parse(same)


def test_truncation_and_bits_are_what_python_computes() -> None:
    """Random nested formulas, negative operands and divisors included."""
    rng = random.Random(3)
    atoms = ("x", "y", "-x", "2*y", "6*x", "x*y", "x + y + 1", "-3*z", "7", "-6")

    def formula(depth: int) -> str:
        kind = rng.random()
        if not depth or kind < 0.2:
            return rng.choice(atoms)
        if kind < 0.75:
            divisor = (
                formula(depth - 1)
                if rng.random() < 0.3
                else rng.choice(("2", "-4", "6", "y", "x*z", "-z", "12"))
            )
            return f"{rng.choice(('truncdiv', 'truncmod'))}({formula(depth - 1)}, {divisor})"
        if kind < 0.9:
            return f"({formula(depth - 1)} {rng.choice('&|^')} {rng.randint(-40, 40)})"
        return f"({formula(depth - 1)} {rng.choice('+-*')} {formula(depth - 1)})"

    compared = refused = 0
    for _ in range(1200):
        text = formula(rng.choice((1, 2, 2, 3)))
        try:
            term = parse(text)
        except ParseError:  # a divisor is 0
            refused += 1
            continue
        for _ in range(6):
            point = {name: rng.randint(-20, 20) for name in ("x", "y", "z")}
            try:
                wanted = eval(text, SPACE, point)
            except ZeroDivisionError:
                continue
            assert evaluate(term, point) == wanted, (text, point)
            compared += 1
    assert compared > 4000
    assert refused < 40
