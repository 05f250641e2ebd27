"""The table of questions, ``cases.json``: one question a row.

Columns: ``topic``; ``ranges`` by name; ``assume``, a list of conditions; ``query``; ``best``, the
true answer (true: always, false: never, null: it depends); ``current``, what `guards.prove` answers
today.  Where the two differ we are weak, and the table says so; a row whose ``current`` becomes
better must be updated, so that no weakness and no progress is hidden.
"""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from tests.oracles import Question

PATH = Path(__file__).with_name("cases.json")


@attrs.frozen
class Row:
    """One row."""

    topic: str
    question: Question
    best: bool | None
    current: bool | None


def rows() -> list[Row]:
    """All rows of the table."""
    found = []
    for item in json.loads(PATH.read_text(encoding="utf-8")):
        ranges = {name: (pair[0], pair[1]) for name, pair in item["ranges"].items()}
        question = Question(item["query"], ranges, tuple(item["assume"]))
        found.append(Row(item["topic"], question, item["best"], item["current"]))
    return found
