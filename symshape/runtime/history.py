"""What happened to one compiled function: traces, sizes that came for the first time, refusals, evictions; bounded."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import attrs

from symshape.graph.program import Slot

MOST = 2048
"""Moments that are remembered: of each sort, so that many new sizes do not push the traces out."""
_EXPLAINED = 64  # entries up to which it is found out at once which is nearest to a call that misses


class Explained(Protocol):
    """A miss that can say why."""

    @property
    def entries(self) -> Sequence[Any]:
        """What it was compared with."""

    def explain(self) -> str:
        """Why, in one sentence."""


@attrs.frozen
class Moment:
    """Something that happened.

    Attributes:
        call: the number of the call in which it did.
        at: when, in seconds of ``time.monotonic``.
        kind: ``trace``, ``new sizes``, ``fallback`` or ``evicted``.
        entry: the number of the entry that it is about, if any.
        values: the integers of the call, if it is about one.
        slots: where they were read, if that is known.
        text: why, where that is known.
        milliseconds: how long it took, where that is known.
    """

    call: int
    at: float
    kind: str
    entry: int | None = None
    values: tuple[int, ...] = ()
    slots: Sequence[Slot] = ()
    text: str = ""
    milliseconds: float | None = None


class History:
    """The last moments of each sort; nothing is noted for a call that the memo knows.

    >>> history = History()
    >>> history.note("trace", 1, entry=0)
    >>> history.note("new sizes", 1, entry=0, values=(8, 4))
    >>> [moment.kind for moment in history.moments()]
    ['trace', 'new sizes']
    """

    def __init__(self) -> None:
        self._often: deque[Moment] = deque(maxlen=MOST)
        self._rest: deque[Moment] = deque(maxlen=MOST)

    def note(
        self,
        kind: str,
        call: int,
        *,
        entry: int | None = None,
        values: tuple[int, ...] = (),
        slots: Sequence[Slot] = (),
        text: str = "",
        milliseconds: float | None = None,
    ) -> None:
        """Something happened now."""
        kept = self._often if kind == "new sizes" else self._rest
        kept.append(Moment(call, time.monotonic(), kind, entry, values, slots, text, milliseconds))

    def refused(self, call: int, values: tuple[int, ...], text: str, seconds: float) -> None:
        """A call could not be traced, and runs as it is."""
        self.note("fallback", call, values=values, text=text, milliseconds=seconds * 1e3)

    def because(self, miss: Explained | None) -> None:
        """Says of the last trace why it was needed."""
        if miss is not None and len(miss.entries) <= _EXPLAINED:
            last = next(at for at in range(len(self._rest) - 1, -1, -1) if self._rest[at].kind == "trace")
            self._rest[last] = attrs.evolve(self._rest[last], text=miss.explain())

    def moments(self) -> list[Moment]:
        """All that is remembered, in order."""
        return sorted([*self._rest, *self._often], key=lambda moment: (moment.at, moment.kind != "trace"))

    def clear(self) -> None:
        """Forgets everything."""
        self._often.clear()
        self._rest.clear()
