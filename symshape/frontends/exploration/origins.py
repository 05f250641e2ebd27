"""The lines of the user's program that a report refers to, each once, with the lines around it."""

from __future__ import annotations

import linecache

import attrs

from guards.sets.origin import Origin
from symshape.exploring.report_records import OriginRecord

_AROUND = 2  # lines shown before and after the line itself
_LONGEST = 400  # characters of a line


class Origins:
    """A collector of origins.

    Attributes:
        records: the records so far.
    """

    def __init__(self) -> None:
        self.records: list[OriginRecord] = []
        self._positions: dict[Origin, int] = {}

    def add(self, origin: Origin | None, *, excerpt: bool = True) -> int | None:
        """Return the position of an origin among the records; None for no origin."""
        if origin is None:
            return None
        found = self._positions.get(origin)
        if found is None:
            found = self._positions[origin] = len(self.records)
            place, text, asked = origin.cells
            lines = _excerpt(origin) if excerpt else []
            self.records.append(OriginRecord(place, text[:_LONGEST], asked, lines, origin.line))
        elif excerpt and not self.records[found].excerpt:
            self.records[found] = attrs.evolve(self.records[found], excerpt=_excerpt(origin))
        return found


def _excerpt(origin: Origin) -> list[tuple[int, str]]:
    if not origin.file:
        return []
    first = max(1, origin.line - _AROUND)
    numbers = range(first, origin.line + _AROUND + 1)
    lines = [
        (number, linecache.getline(origin.file, number).rstrip()[:_LONGEST]) for number in numbers
    ]
    return lines if any(text for _, text in lines) else []
