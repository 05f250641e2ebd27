"""Texts as terms: what they require is settled, what a comparison loses is kept, and texts are read
once.
"""

from __future__ import annotations

import pytest

from guards import GuardSet, decide, prove
from guards.asking.reading import forget_texts, parse, understood
from guards.errors import ParseError
from guards.terms import boolean
from guards.terms.term import Term

WIDE = {"p": (None, None), "x": (None, None)}


@pytest.mark.parametrize(
    ("text", "defined"),
    [
        ("x % (3*x - x) == 0", "x != 0"),
        ("Mod(5*x, 4*x) == 0", "x != 0"),
        ("x*y // y == x // z", "y != 0"),
        ("x // y == x % y", None),
        ("x / x == y", "x != 0"),
        ("floor(x / x) == y", "x != 0"),
        ("truncmod(x, x) == y", "x != 0"),
        ("ModularIndexing(x, 1, x) == y", "x != 0"),
        ("y <= 1 or x // y >= 2", None),
        ("(x if x > 3 else x // y) <= 2", None),
        ("8*x // 4 == y", None),
    ],
)
def test_divisors_that_cancel_are_remembered(text: str, defined: str | None) -> None:
    assert understood(text).defined is (boolean.TRUE if defined is None else parse(defined))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("p % p == 0", "p != 0"),
        ("not (p % p == 0)", "p < p"),
        ("p <= p % p or p == 3", "p <= -1 or p == 3"),
        ("not (p % p == 0 and p > 3)", "p <= 3"),
        ("(p % p if p > 3 else 1) == 1", "p <= 3"),
        ("x // p - x // p == 0", "p != 0"),
        ("min(x % p, x % p + 1) == x % p", "p != 0"),
        ("(x // p >= 1) == (x // p >= 1)", "p != 0"),
        ("x // p >= 1 or x // p < 1", "p != 0"),
        ("(1 if x // p >= 1 else 1) == 1", "p != 0"),
        ("(x // p >= 1 or x // p < 1) and x > 2", "p != 0 and x > 2"),
        ("any((x // p == x // p, x == 2))", "p != 0 or x == 2"),
        ("(p % p == 0) ^ (x > 1)", "p != 0 and x <= 1"),
        ("Piecewise((p % p, x > 1), (1, True)) == 0", "p != 0 and x > 1"),
        ("(p % p >= 0) >> (x > 1)", "x > 1"),
    ],
)
def test_what_divides_by_zero_does_not_hold(text: str, holds: str) -> None:
    """A text as a guard is false where the text is undefined, also where its term no longer shows
    the divisor.
    """
    guards, wanted = GuardSet(text, ranges=WIDE), GuardSet(holds, ranges=WIDE)
    for point in ({"p": p, "x": x} for p in range(-2, 6) for x in range(-2, 5)):
        assert guards.holds(point) is wanted.holds(point), point
        assert guards.negate().holds(point) is not wanted.holds(point), point


def test_a_witness_is_a_point_at_which_the_text_is_defined() -> None:
    for text in (
        "p <= p % p or p == 3",
        "p % p >= q",
        "(p % p if q > 3 else 1) == 0",
        "p <= p % p",
    ):
        verdict = decide(text, ranges={"p": (0, 5), "q": (0, 9)})
        for point in (verdict.fails, verdict.holds):
            assert point is None or "p" not in point or point["p"] != 0 or point.get("q", 9) <= 3, (
                text,
                verdict,
            )
    nowhere = decide("p <= p % p", ranges={"p": (0, 0)})
    assert (nowhere.value, nowhere.reason) == (
        None,
        "the facts leave no value at which it is defined",
    )


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
        with pytest.raises(
            ParseError, match="must cover everything: the last must be True at character"
        ):
            parse(text)


def test_texts_are_read_once() -> None:
    first = understood("x % (2*x) == 0")
    other = understood("x % (3*x) == 0")
    assert understood("x % (2*x) == 0") is first
    assert understood("x % (3*x) == 0") is other
    forget_texts()
    again = understood("x % (2*x) == 0")
    assert again is not first
    assert (again.term, again.holds) == (first.term, first.holds)
    assert isinstance(parse("x % (2*x) == 0"), Term)


def test_what_a_comparison_loses_is_kept_from_zero() -> None:
    """``x % (3*x - x) == 0`` folds to ``x == 0``, but at 0 it divides by zero: so it never
    holds.
    """
    assert prove("x % (3*x - x) == 0") is False
    assert prove("x == 0") is None
