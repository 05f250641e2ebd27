"""Records and what a scan of them answers, for tests of the parts of a tree."""

from __future__ import annotations

from collections.abc import Sequence

from guards import GuardSet
from guards.dispatch.box import Box, Values
from guards.dispatch.nodes import Record


def records_of(*texts: str, sizes: Sequence[str] = ("a", "b")) -> list[Record]:
    """One record for each text (conditions joined by ``;``), named by its text, in this order of
    priority.
    """
    made = []
    for priority, text in enumerate(texts):
        guards = GuardSet.read(*text.split(";"))
        made.append(Record(text, priority, guards, Box.of(guards, sizes)))
    return made


def scan(records: Sequence[Record], slots: Sequence[str], values: Values) -> Record | None:
    """The first record whose guards hold."""
    known = dict(zip(slots, values, strict=True))
    return next((record for record in records if record.guard_set.holds(known)), None)
