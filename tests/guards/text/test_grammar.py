"""The grammar: chains, choices, calls, and the forms whose operands are read as they are
written.
"""

from __future__ import annotations

import pytest

from guards.asking.reading import parse
from guards.errors import ParseError
from guards.terms import arithmetic
from guards.terms.boolean import FALSE, TRUE
from guards.terms.fold import evaluate
from guards.text.reader import read
from tests.guards.text.agreement import say_the_same


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("floordiv(x, y)", "x // y"),
        ("floor(x / 4)", "x // 4"),
        ("ceil(x / 4)", "-(-x // 4)"),
        ("1 <= x < 5", "x >= 1 and x <= 4"),
        ("Piecewise((1, x < 0), (2, True))", "1 if x < 0 else 2"),
        ("  x  +\n y ", "x + y"),
        ("True and x < 1", "x < 1"),
        ("trunc(x / y)", "truncdiv(x, y)"),
        ("int(x / 4)", "truncdiv(x, 4)"),
        ("TruncToInt(IntTrueDiv(x, 4))", "truncdiv(x, 4)"),
        (
            "TruncToInt(x) + CeilToInt(y) + Identity(x) + int(y > 3)",
            "2*x + y + (1 if y > 3 else 0)",
        ),
        ("math.ceil(x / 4) + math.floor(y / 2)", "ceildiv(x, 4) + y // 2"),
        ("torch.sym_max(x, y)", "max(x, y)"),
        ("Piecewise((x, x > 0), (0, x <= 0))", "x if x > 0 else 0"),
        ("Piecewise((1, x > 3), (2, x < 5))", "1 if x > 3 else 2"),
    ],
)
def test_forms(text: str, same: str) -> None:
    assert say_the_same(text, same)


def test_constants() -> None:
    assert parse("True") is TRUE
    assert parse("not True") is FALSE
    assert parse("2 + 3 < 6") is TRUE
    assert parse("-7 // 2") is arithmetic.const(-4)


def test_a_chain_of_operators_is_as_long_as_it_likes_but_nesting_is_not() -> None:
    assert parse(" - ".join(["x"] * 400)) is parse("-398*x")
    assert parse("(" * 90 + "x" + ")" * 90) is parse("x")  # parentheses leave no node
    assert parse("-" * 140 + "x") is parse("x")
    with pytest.raises(ParseError, match="nested too deeply"):
        parse("-" * 160 + "x")


def test_what_has_to_cover_everything_is_told() -> None:
    whole = read("Piecewise((x, x > 0), (0, True))")
    assert whole.required == ()
    for last, covered in (("x <= y + 1", True), ("x < y", False)):
        (required,) = read(f"Piecewise((x, x > y), (0, {last}))").required
        assert (
            all(
                bool(evaluate(required.condition, {"x": x, "y": y}))
                for x in range(-4, 5)
                for y in range(-4, 5)
            )
            is covered
        )
        assert "must cover everything" in str(required.error)
        assert required.error.position == 0
