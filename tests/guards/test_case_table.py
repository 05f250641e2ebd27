"""The case table: every row is what oracles say, and what we answer is what the table says we
answer.
"""

from __future__ import annotations

from collections import Counter

import pytest

from guards.asking.ladder import counters, reset_counters
from guards.asking.queries import decide
from tests.guards.case_table import Row, rows
from tests.oracles import by_z3, complete, names_in, tried

ROWS = rows()
TOPICS = sorted({row.topic for row in ROWS})


def _window(row: Row) -> int:
    return 24 if len(names_in(row.question.query, *row.question.assume)) < 3 else 6


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_every_row_is_true(topic: str) -> None:
    """`best` against Python's arithmetic, and against Z3 where that does not try everything."""
    judged = Counter[str]()
    for row in ROWS:
        if row.topic != topic:
            continue
        holds, fails = tried(row.question, _window(row))
        if row.best is None:
            assert holds is not None, row
            assert fails is not None, row
            continue
        assert (fails if row.best else holds) is None, row
        if complete(row.question, _window(row)):
            judged["tried completely"] += 1
            continue
        answer = by_z3(row.question, 300_000)
        assert answer is row.best or answer is None, row
        judged["by Z3" if answer is row.best else "tried in part"] += 1
    assert judged["tried in part"] <= 0.2 * sum(judged.values()), judged


@pytest.mark.parametrize("topic", TOPICS)
def test_we_answer_as_the_table_says(topic: str) -> None:
    for row in ROWS:
        if row.topic == topic:
            asked = row.question
            verdict = decide(asked.query, ranges=asked.ranges, assume=asked.assume)
            assert verdict.value is row.current, f"{asked}: {verdict}, the table says {row.current}"


def test_the_table_is_large_and_we_are_strong_on_it() -> None:
    reset_counters()
    for row in ROWS:
        decide(row.question.query, ranges=row.question.ranges, assume=row.question.assume)
    found = counters()
    decidable = sum(row.best is not None for row in ROWS)
    assert decidable >= 400
    assert sum(row.best is not None and row.current is row.best for row in ROWS) >= 0.99 * decidable
    assert found["z3"] <= 0.02 * len(ROWS), found
    assert len(
        {
            (row.question.query, row.question.assume, tuple(row.question.ranges.items()))
            for row in ROWS
        }
    ) == len(ROWS)
