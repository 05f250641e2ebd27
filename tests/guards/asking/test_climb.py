"""A climb: which answers are still possible, and what ends it."""

from __future__ import annotations

import pytest

from guards import parse
from guards.asking.climb import Climb
from guards.facts.facts import Facts
from guards.terms.boolean import not_

ASKED = parse("x < y")


def _climb(only: bool | None) -> Climb:
    return Climb(Facts().component(ASKED), ASKED, only)


@pytest.mark.parametrize(
    ("only", "left"), [(None, [True, False]), (True, [True]), (False, [False])]
)
def test_points_exclude_answers(only: bool | None, left: list[bool]) -> None:
    climb = _climb(only)
    assert climb.possible() == left
    climb.exclude(True, None)
    assert climb.possible() == left
    climb.exclude(True, {"x": 1, "y": 0})
    assert climb.possible() == [answer for answer in left if not answer]
    assert (climb.fails, climb.holds) == ({"x": 1, "y": 0}, None)
    climb.exclude(False, {"x": 0, "y": 1})
    assert climb.possible() == []
    assert climb.holds == {"x": 0, "y": 1}


def test_an_answer_holds_where_it_has_no_counterexample() -> None:
    climb = _climb(None)
    assert climb.counterexamples(True) is not_(ASKED)
    assert climb.counterexamples(False) is ASKED
    refused: list[object] = []
    assert not climb.refute(lambda _, formula: bool(refused.append(formula)))
    assert refused == [not_(ASKED), ASKED]
    assert climb.value is None
    assert climb.refute(lambda _, formula: formula is ASKED)
    assert climb.value is False


def test_excluded_answers_are_not_proven() -> None:
    climb = _climb(None)
    climb.exclude(True, {"x": 1, "y": 0})
    assert climb.refute(lambda _, __: True)
    assert climb.value is False


def test_settling() -> None:
    climb = _climb(None)
    assert not climb.settle(None)
    assert climb.settle(False)
    assert (climb.value, climb.rung) == (False, "unknown")
