"""Terms as JSON: the very same term is read back, from text or from steps."""

from __future__ import annotations

import json
import random

import pytest

from guards import FormatError, parse
from guards.sets.json_terms import _steps, condition_from_json, term_from_json, term_to_json
from guards.terms.arithmetic import symbol
from guards.terms.boolean import gt
from guards.terms.division import floordiv
from guards.terms.extremes import maximum
from guards.terms.printing import text
from guards.terms.term import Term
from tests.guards.making import random_set

S0, S1 = symbol("s0"), symbol("s1")


def test_what_can_be_read_is_written_as_text() -> None:
    rng = random.Random(8)
    for _ in range(100):
        for guard in random_set(rng):
            written = term_to_json(guard.term)
            assert isinstance(written, str)
            assert term_from_json(written) is guard.term
            assert term_from_json(_steps(guard.term)) is guard.term


def test_text_that_would_be_read_otherwise_is_written_as_steps() -> None:
    """The parser takes no text nested so deeply; the steps refer to each other by number."""
    term: Term = S0
    for level in range(150):
        term = maximum(floordiv(term + 3, 2) + level % 3, S1)
    written = term_to_json(gt(term, 7))
    assert isinstance(written, list)
    assert term_from_json(json.loads(json.dumps(written))) is gt(term, 7)


def test_steps_of_every_kind() -> None:
    for source in (
        "s0*s0*s1 - 3*s1 + 4 <= 0",
        "s0 // s1 + s0 % 3 != 2 and s0 < 4 or max(s0, s1, 3) == min(s1, 7)",
        "(s0 if s1 > 2 else 5) == s1",
        "True",
        "False",
    ):
        term = parse(source)
        assert term_from_json(_steps(term)) is term, text(term)


def test_a_shared_term_that_is_long_when_written_out() -> None:
    """Its text would have about 2**40 characters: it is written as steps, but such a document is
    not read.
    """
    term: Term = S0
    for _ in range(40):
        term = maximum(term // 2, floordiv(term, S1))
    written = term_to_json(gt(term, 7))
    assert isinstance(written, list)
    assert len(written) < 200
    with pytest.raises(FormatError, match="when written out"):
        term_from_json(written)


def test_a_condition_is_no_integer() -> None:
    assert condition_from_json([["symbol", "s0"], ["le", 0]]) is parse("s0 <= 0")
    for integer in ("s0 % 8", [["symbol", "s0"]], [["const", 1]]):
        with pytest.raises(FormatError, match="a condition is needed"):
            condition_from_json(integer)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([["const"]], "unknown kind of term: 'const'"),
        ([["const", True]], "must be of type int, not bool"),
        ([["symbol", "s0"], ["add", 1, [0]]], "not a term"),
        ([["symbol", "s0"], ["add", "1", [0, 1]]], "a constant must be of type int"),
        ([["symbol", "s0"], ["add", 1, [0, 1.0]]], "a coefficient must be of type int"),
        ([["true", 0]], "true takes 0 operands, not 1"),
        ([[]], "unknown kind of term: None"),
        ({}, "a term must be of type list"),
        (["s0"], "a step of a term must be of type list"),
        ([["symbol", "s0"], ["and", 0]], "not a term"),
    ],
)
def test_wrong_steps(steps: object, message: str) -> None:
    with pytest.raises(FormatError) as raised:
        term_from_json(steps)
    assert message in str(raised.value)
