"""Printing: text that a person would write and that reads back, and source that computes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guards.asking.reading import parse
from guards.errors import ParseError
from guards.terms.arithmetic import symbol
from guards.terms.boolean import le
from guards.terms.fold import evaluate
from guards.terms.printing import python, text
from guards.terms.term import Op, Term
from tests.oracles import SPACE
from tests.strategies import conditions, integers


@pytest.mark.parametrize(
    "shown",
    [
        "s0 + s1 > 2",
        "s0 % 8 == 0",
        "s0 == s1",
        "s0 != s1",
        "s0 < s1",
        "s0 <= s1 + 3",
        "s0 >= 2",
        "s0 <= 7",
        "2*s0 < s1",
        "s0 == 8*(s0//8)",
        "s0 < 8*s1 and s1 >= 2",
        "s0 == 1 or s1 == 1",
        "max(s0, 1) <= s1",
        "(s0 if s0 >= s1 else 4) <= s2",
        "s0*s1 <= s2",
        "s0*(s1//2) <= s2",
        "s0//(s1 + 1) == 0",
        "(s0 + 7)//8 <= s1",
    ],
)
def test_text_of_conditions_is_what_a_person_writes(shown: str) -> None:
    assert text(parse(shown)) == shown


@pytest.mark.parametrize(
    "shown",
    ["s0 + s1", "8*(s0//8)", "s0 - s1 - 3", "-s0", "4 - s0", "s0*s0*s1", "2*s0*s1", "0", "-7"],
)
def test_text_of_integers_is_what_a_person_writes(shown: str) -> None:
    assert text(parse(shown)) == shown


def test_names_are_replaced() -> None:
    assert text(parse("s0 + s1 > 2"), {"s0": "x.size(0)"}) == "x.size(0) + s1 > 2"


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(conditions() | integers())
def test_text_reads_back_as_the_same_term(source: str) -> None:
    try:
        term = parse(source)
    except ValueError:
        return
    assert parse(text(term)) is term


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(conditions(), st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_generated_source_agrees_with_evaluation(source: str, a: int, b: int, c: int) -> None:
    try:
        term = parse(source)
        wanted = evaluate(term, {"x": a, "y": b, "z": c})
    except (ValueError, ZeroDivisionError):
        return
    made = python(term, {"x": "v[0]", "y": "v[1]", "z": "v[2]"})
    try:
        found = eval(made, SPACE, {"v": (a, b, c)})
    except (
        ZeroDivisionError
    ):  # Python looks at the parts in order; evaluation lets a later part decide
        assert term.op in (Op.AND, Op.OR)
        return
    assert found is wanted


def grown(times: int) -> Term:
    """``x + x // 2`` of itself, so many times over: a graph of that many parts, a text of
    2**times.
    """
    term = symbol("s0")
    for _ in range(times):
        term = term + term // 2
    return term


def test_huge_terms_are_shortened_for_people() -> None:
    assert text(grown(4)).count("s0") == 2**4
    shown = text(grown(60))
    assert shown.startswith("s0 + s0//2 + (s0 + s0//2)//2")
    assert "…" in shown
    assert "(shortened: " in shown
    assert len(shown) < 2000
    assert "…" in text(le(grown(60), 9))
    with pytest.raises(ParseError):
        parse(shown)  # never read as another term
