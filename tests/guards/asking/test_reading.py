"""Texts as terms: what they require is settled, what a comparison loses is kept, and texts are read once."""

from __future__ import annotations

import pytest

from guards import prove
from guards.asking.reading import forget_texts, parse, understood
from guards.errors import ParseError
from guards.terms.term import Term


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("x % (3*x - x) == 0", ("2*x",)),
        ("Mod(5*x, 4*x) == 0", ("4*x",)),
        ("x*y // y == x // z", ("y",)),
        ("x // y == x % y", ()),
        ("x % (2*x) == 0 or x == 0", ()),
        ("(x % (2*x) if x > 0 else 0) == 0", ()),
        ("8*x // 4 == y", ()),
    ],
)
def test_divisors_that_cancel_are_remembered(text: str, lost: tuple[str, ...]) -> None:
    assert understood(text).lost == tuple(parse(divisor) for divisor in lost)


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("Piecewise((x, x > 0), (0, x <= 0))", True),
        ("Piecewise((1, x > 3), (2, x < 5))", True),
        ("Piecewise((1, x > y), (2, 2*x <= 2*y + 1))", True),
        ("Piecewise((1, x > y), (2, x < y))", False),
        ("Piecewise((1, x >= 1), (2, x >= 3))", False),
        ("1 + Piecewise((Piecewise((1, x > y), (2, x < y)), x != y), (0, True))", False),
    ],
)
def test_piecewise_covers_everything(text: str, covered: bool) -> None:
    if covered:
        assert not parse(text).is_bool
        return
    for _ in range(2):  # what failed is not remembered as read
        with pytest.raises(ParseError, match="must cover everything: the last must be True at character"):
            parse(text)


def test_texts_are_read_once() -> None:
    first = understood("x % (2*x) == 0")
    other = understood("x % (3*x) == 0")
    assert understood("x % (2*x) == 0") is first
    assert understood("x % (3*x) == 0") is other
    forget_texts()
    again = understood("x % (2*x) == 0")
    assert again is not first
    assert (again.term, again.lost) == (first.term, first.lost)
    assert isinstance(parse("x % (2*x) == 0"), Term)


def test_what_a_comparison_loses_is_kept_from_zero() -> None:
    """``x % (3*x - x) == 0`` folds to ``x == 0``, but at 0 it divides by zero: so it never holds."""
    assert prove("x % (3*x - x) == 0") is False
    assert prove("x == 0") is None
