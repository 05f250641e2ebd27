"""Terms and Z3's expressions have the same values, negative divisors included; what has no
counterpart is refused.
"""

from __future__ import annotations

import random

import pytest
import z3

from guards import ParseError, from_z3, parse, to_z3
from guards.terms.fold import evaluate
from tests.strategies import condition, integer

NAMES = ("x", "y", "z")
X, Y = z3.Ints("x y")


def _value(expression: z3.ExprRef, values: dict[str, int]) -> object:
    pairs = [(z3.Int(name), z3.IntVal(value)) for name, value in values.items()]
    found = z3.simplify(z3.substitute(expression, *pairs))
    return z3.is_true(found) if z3.is_bool(found) else found.as_long()


def test_random_terms_keep_their_value_there_and_back() -> None:
    rng = random.Random(6)
    compared = 0
    for number in range(60):
        try:
            term = parse((integer if number % 2 else condition)(rng, NAMES))
        except ParseError:
            continue
        expression = to_z3(term)
        back = from_z3(expression)
        for _ in range(4):
            values = {name: rng.randint(-6, 9) for name in NAMES}
            try:
                expected = evaluate(term, values)
            except ZeroDivisionError:
                continue
            assert _value(expression, values) == expected, (term, expression, values)
            try:
                assert evaluate(back, values) == expected, (term, back, values)
            except ZeroDivisionError:  # a divisor that is 0 in the branch that is not taken
                continue
            compared += 1
    assert compared > 150


def test_division_of_z3_is_not_python_s() -> None:
    """By its own evaluation, at all signs; both by a symbol and by numbers."""
    for expression in (X / Y, X % Y, X / z3.IntVal(-3), X % z3.IntVal(-3), X / 4, X % 4):
        term = from_z3(expression)
        for x in range(-9, 10):
            for y in (-4, -3, -1, 1, 2, 5):
                values = {"x": x, "y": y}
                assert evaluate(term, values) == _value(expression, values), (expression, values)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (z3.If(X > Y, X, Y) ** 2 - X, "(x if x > y else y) ** 2 - x"),
        (z3.Distinct(X, Y, z3.IntVal(3)), "x != y and x != 3 and y != 3"),
        (z3.Implies(X > 1, Y > 1), "x <= 1 or y > 1"),
        (z3.Xor(X > 1, Y > 1), "(x > 1) ^ (y > 1)"),
        (z3.And(X >= 2, z3.Or(Y < 1, z3.Not(X == Y))), "x >= 2 and (y < 1 or x != y)"),
        ((X > 1) == (Y > 1), "(x > 1) == (y > 1)"),
        (z3.BoolVal(True), "True"),
        (-X * 3 + Y * Y, "-3*x + y*y"),
    ],
)
def test_expressions(expression: z3.ExprRef, text: str) -> None:
    assert from_z3(expression) is parse(text)


@pytest.mark.parametrize(
    "expression",
    [
        z3.Real("r") > 1,
        z3.BitVec("v", 8) + 1,
        z3.ToReal(X) > 1,
        z3.Bool("p"),
        z3.ForAll([X], X > Y),
        3,
        "x > 1",
    ],
    ids=str,
)
def test_what_has_no_counterpart_is_refused(expression: object) -> None:
    with pytest.raises(ParseError):
        from_z3(expression)


def test_a_proof_of_z3_about_what_was_handed_over() -> None:
    solver = z3.Solver()
    solver.add(to_z3(parse("x >= 0 and x % 8 == 0")), z3.Not(to_z3(parse("x // 2 % 4 == 0"))))
    assert solver.check() == z3.unsat
