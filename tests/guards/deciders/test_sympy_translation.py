"""Terms and SymPy's expressions have the same values, what has no counterpart is refused."""

from __future__ import annotations

import random

import pytest
import sympy

from guards import ParseError, from_sympy, parse, symbol, to_sympy
from guards.terms.fold import evaluate
from tests.strategies import condition, integer

NAMES = ("x", "y", "z")
X, Y = sympy.symbols("x y", integer=True)


def _value(expression: object, values: dict[str, int]) -> object:
    found = sympy.sympify(expression).subs(
        {sympy.Symbol(name, integer=True): value for name, value in values.items()}
    )
    return bool(found) if found in (sympy.true, sympy.false) else int(found)


def test_random_terms_keep_their_value_there_and_back() -> None:
    rng = random.Random(5)
    compared = 0
    for number in range(60):
        try:
            term = parse((integer if number % 2 else condition)(rng, NAMES))
        except ParseError:
            continue
        expression = to_sympy(term)
        back = from_sympy(expression)
        for _ in range(4):
            values = {name: rng.randint(-6, 9) for name in NAMES}
            try:
                expected = evaluate(term, values)
            except ZeroDivisionError:
                continue
            assert _value(expression, values) == expected, (term, expression, values)
            assert evaluate(back, values) == expected, (term, back, values)
            compared += 1
    assert compared > 150


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (sympy.floor(X / 8) * 8 + sympy.Mod(X, 8), "x // 8 * 8 + x % 8"),
        (sympy.floor((X + Y) / (2 * Y)), "(x + y) // (2*y)"),
        (sympy.ceiling(X / 3), "-(-x // 3)"),
        (X * (X + 1) / 2 * 2, "x*x + x"),
        (sympy.Piecewise((X, X > Y), (Y, True)), "x if x > y else y"),
        (sympy.Max(X, 2) - sympy.Min(Y, X, 3), "max(x, 2) - min(y, x, 3)"),
        (
            sympy.And(X / 2 < Y, sympy.Ne(X, 3), sympy.Not(sympy.Eq(Y, 1))),
            "x < 2*y and x != 3 and y != 1",
        ),
        (sympy.Abs(X) + 3, "abs(x) + 3"),
        (sympy.Symbol("free") + 1, "free + 1"),
        (True, "True"),
        (7, "7"),
    ],
)
def test_expressions(expression: object, text: str) -> None:
    assert from_sympy(expression) is parse(text)


def test_torch_s_own_functions_are_understood() -> None:
    from torch.utils._sympy import functions

    assert from_sympy(functions.FloorDiv(X + 7, 8)) is parse("(x + 7) // 8")
    assert from_sympy(functions.PythonMod(X, Y)) is parse("x % y")
    assert from_sympy(functions.ModularIndexing(X, 4, Y)) is parse("x // 4 % y")
    assert from_sympy(functions.CeilToInt(X / 3)) is parse("-(-x // 3)")


@pytest.mark.parametrize(
    "expression",
    [
        X / 2,
        sympy.sqrt(X),
        sympy.pi,
        sympy.Symbol("r", integer=False),
        sympy.sin(X),
        1 / X < Y,
        sympy.Float(1.5),
        "x",
    ],
    ids=str,
)
def test_what_is_no_integer_is_refused(expression: object) -> None:
    with pytest.raises(ParseError):
        from_sympy(expression)


def test_symbols_of_the_caller() -> None:
    batch = sympy.Symbol("batch", integer=True, positive=True)
    made = to_sympy(parse("batch * seq >= 1"), {"batch": batch})
    assert made.free_symbols == {batch, sympy.Symbol("seq", integer=True)}
    assert from_sympy(made) is (symbol("batch") * symbol("seq") >= 1)
