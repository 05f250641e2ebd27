"""What happened to one compiled function: traces, new sizes, buckets, captures, refusals, evictions; bounded."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import attrs

from symshape import forks
from symshape.graph.program import Slot

MOST = 2048
"""Moments that are remembered: of each kind, so that many new sizes do not push the traces out."""
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
        kind: ``trace``, ``new sizes``, ``fallback``, ``evicted``; of what runs an entry ``bucket made`` (a padded
            program), ``bucket chosen`` (who serves certain sizes from now on), ``captured``, ``kernels timed``,
            ``dropped`` (it left for another), ``padding refused`` (a symbol is exact), ``ran op by op`` (instead).
        entry: the number of the entry that it is about, if any.
        values: the integers of the call, if it is about one.
        slots: where they were read, if that is known.
        sizes: in words, where it is about others than those of the call: up to which sizes a bucket serves.
        text: why, where that is known.
        milliseconds: how long it took, where that is known.
    """

    call: int
    at: float
    kind: str
    entry: int | None = None
    values: tuple[int, ...] = ()
    slots: Sequence[Slot] = ()
    sizes: str = ""
    text: str = ""
    milliseconds: float | None = None


class History:
    """The last moments of each kind; nothing is noted for a call that the memo knows.

    >>> history = History()
    >>> history.note("trace", 1, entry=0)
    >>> history.note("new sizes", 1, entry=0, values=(8, 4))
    >>> [moment.kind for moment in history.moments()]
    ['trace', 'new sizes']
    """

    def __init__(self) -> None:
        self._kept: dict[str, deque[tuple[Any, ...]]] = {}  # the attributes of moments, which few are asked for
        self._lock = forks.lock()  # an object that dies in between may have something to tell

    def note(
        self,
        kind: str,
        call: int,
        *,
        entry: int | None = None,
        values: tuple[int, ...] = (),
        slots: Sequence[Slot] = (),
        sizes: str = "",
        text: str = "",
        milliseconds: float | None = None,
    ) -> None:
        """Something happened now."""
        moment = (call, time.monotonic(), kind, entry, values, slots, sizes, text, milliseconds)
        with self._lock:
            kept = self._kept.get(kind)
            if kept is None:
                kept = self._kept[kind] = deque(maxlen=MOST)
            kept.append(moment)

    def refused(self, call: int, values: tuple[int, ...], text: str, seconds: float) -> None:
        """A call could not be traced, and runs as it is."""
        self.note("fallback", call, values=values, text=text, milliseconds=seconds * 1e3)

    def because(self, miss: Explained | None) -> None:
        """Says of the last trace why it was needed."""
        if miss is not None and len(miss.entries) <= _EXPLAINED:
            text = miss.explain()
            with self._lock:
                traces = self._kept["trace"]
                traces[-1] = attrs.astuple(attrs.evolve(Moment(*traces[-1]), text=text), recurse=False)

    def moments(self) -> list[Moment]:
        """All that is remembered, in order."""
        with self._lock:
            found = [Moment(*each) for kept in self._kept.values() for each in kept]
        return sorted(found, key=lambda moment: (moment.at, moment.kind != "trace"))

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._kept.clear()
