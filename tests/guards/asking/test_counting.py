"""Counting which rung settled how many questions."""

from __future__ import annotations

from guards.asking.counting import counters, reset_counters
from guards.asking.ladder import RUNGS
from guards.asking.queries import decide, prove


def test_every_question_is_counted_once() -> None:
    reset_counters()
    assert counters() == dict.fromkeys(RUNGS, 0)
    assert decide("counted >= 0").value is True
    assert prove("counted // 3 + counted // 2 <= counted") is True
    assert prove("counted // 3 + counted // 2 <= counted") is True
    found = counters()
    assert (found["interval"], found["linear"], found["memo"]) == (1, 1, 1)
    assert sum(found.values()) == 3


def test_what_is_returned_is_a_copy() -> None:
    reset_counters()
    counters()["z3"] = 7
    assert counters()["z3"] == 0
