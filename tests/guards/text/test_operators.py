"""Operators of the language: what each makes of integers and of conditions, and the limits on
size.
"""

from __future__ import annotations

import ast

import pytest

from guards.errors import ParseError
from guards.terms.arithmetic import const, symbol
from guards.terms.boolean import FALSE, TRUE, ge
from guards.text import operators
from guards.text.transcript import Transcript
from tests.guards.text.agreement import say_the_same


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("ceildiv(x, 8)", "-(-x // 8)"),
        ("x ** 2", "x * x"),
        ("x << 3", "8*x"),
        ("x >> 2", "x // 4"),
        ("x & 7", "x % 8"),
        ("(x < y) & (y < 5)", "x < y and y < 5"),
        ("(x < y) | (y < 5)", "x < y or y < 5"),
        ("~(x < y)", "x >= y"),
        ("(x > 3) >> (x > 1)", "x <= 3 or x > 1"),
        ("(x > 3) == (y > 1)", "(x > 3 and y > 1) or (x <= 3 and y <= 1)"),
        ("(x > 0) + (y > 0) <= 2", "(1 if x > 0 else 0) + (1 if y > 0 else 0) <= 2"),
        ("-x + +y", "y - x"),
        ("~x", "-x - 1"),
        ("x & 12", "4*(x // 4 % 4)"),
        ("5 & x", "x % 2 + 4*(x // 4 % 2)"),
        ("x & -8", "x - x % 8"),
        ("x & ~7", "x - x % 8"),
        ("x | 7", "x - x % 8 + 7"),
        ("x | 0", "x"),
        ("x ^ 1", "x + 1 - 2*(x % 2)"),
        ("x ^ -1", "~x"),
        ("(x ^ x) + (y | y) + (x & x)", "x + y"),
        ("12 ^ 10 | 1", "7"),
    ],
)
def test_what_operators_mean(text: str, same: str) -> None:
    assert say_the_same(text, same)


NODE = ast.parse("x + y", mode="eval").body
x, y = symbol("x"), symbol("y")


def test_sizes_are_limited() -> None:
    notes = Transcript("x + y")
    with pytest.raises(ParseError, match="bits"):
        operators.checked(notes, const(1 << operators.MAX_BITS), NODE)
    assert (
        operators.checked(notes, const((1 << operators.MAX_BITS) - 1), NODE).value.bit_length()
        == operators.MAX_BITS
    )
    with pytest.raises(ParseError, match="factors"):
        operators.power(notes, x, operators.MAX_EXPONENT + 1, NODE)
    wide = sum((symbol(f"v{index}") for index in range(60)), const(0))
    with pytest.raises(ParseError, match="multiplied out"):
        operators.product(notes, wide, wide, NODE)


def test_conditions_count_as_numbers_where_one_is_wanted() -> None:
    assert operators.number(TRUE) is const(1)
    assert operators.number(x) is x
    assert operators.constant(Transcript(""), const(4), "an exponent", 4, NODE) == 4
    with pytest.raises(ParseError, match="an exponent must be a constant from 0 to 4"):
        operators.constant(Transcript(""), const(5), "an exponent", 4, NODE)


def test_divisors_are_noted() -> None:
    notes = Transcript("")
    operators.combined(notes, ast.FloorDiv, x, const(2), NODE)  # type: ignore[arg-type]
    operators.combined(notes, ast.Mod, x, y, NODE)  # type: ignore[arg-type]
    assert list(notes.divisors) == [y]


@pytest.mark.parametrize("a", [FALSE, TRUE])
@pytest.mark.parametrize("b", [FALSE, TRUE])
def test_truth_tables(a: object, b: object) -> None:
    assert operators.iff(a, b) is (TRUE if a is b else FALSE)  # type: ignore[arg-type]
    assert operators.implies(a, b) is (FALSE if a is TRUE and b is FALSE else TRUE)  # type: ignore[arg-type]
    assert operators.chosen(ge(x, 1), x, x) is x
