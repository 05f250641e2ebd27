"""The history of one compiled function: traces, new sizes, buckets, captures, refusals, evictions;
bounded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import attrs

from symshape import forks
from symshape.graph.program import Slot

MOST = 2048
"""The number of moments remembered of each kind; a bound for each kind keeps new sizes from
displacing traces.
"""
# entries: a miss among more is not explained, since the nearest entry takes long to find
_EXPLAINED = 64


class Explained(Protocol):
    """A cache miss that can explain itself."""

    @property
    def entries(self) -> Sequence[Any]:
        """The entries that the call was compared with."""

    def explain(self) -> str:
        """Return why no entry served the call, in one sentence."""


@attrs.frozen
class Moment:
    """An event in the history of a compiled function.

    Attributes:
        call: the number of the call in which it happened.
        at: the time, in seconds of ``time.monotonic``.
        kind: ``trace``, ``new sizes``, ``fallback``, ``evicted``; from runners ``bucket made`` (a
            padded program), ``bucket chosen`` (the bucket that serves certain sizes now),
            ``captured``, ``kernels timed``, ``dropped`` (a bucket, for another),
            ``padding refused`` (a symbol is exact), ``ran op by op`` (instead).
        entry: the number of the entry concerned, if any.
        values: the integers of the call concerned, if any.
        slots: where the integers were read, if known.
        sizes: other sizes than the call's, in words: up to which sizes a bucket serves.
        text: the reason, if known.
        milliseconds: the duration, if known.
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
    """The last moments of each kind; calls that hit the memo are not recorded.

    >>> history = History()
    >>> history.note("trace", 1, entry=0)
    >>> history.note("new sizes", 1, entry=0, values=(8, 4))
    >>> [moment.kind for moment in history.moments()]
    ['trace', 'new sizes']
    """

    def __init__(self) -> None:
        self._kept: dict[
            str, deque[tuple[Any, ...]]
        ] = {}  # attributes of moments; objects are made when read
        self._lock = forks.lock()  # reentrant: an object that dies inside may record a moment

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
        """Record a moment that happens now."""
        moment = (call, time.monotonic(), kind, entry, values, slots, sizes, text, milliseconds)
        with self._lock:
            kept = self._kept.get(kind)
            if kept is None:
                kept = self._kept[kind] = deque(maxlen=MOST)
            kept.append(moment)

    def refused(self, call: int, values: tuple[int, ...], text: str, seconds: float) -> None:
        """Record that a call could not be traced and runs eagerly."""
        self.note("fallback", call, values=values, text=text, milliseconds=seconds * 1e3)

    def because(self, miss: Explained | None) -> None:
        """Record why the last trace was needed."""
        if miss is not None and len(miss.entries) <= _EXPLAINED:
            text = miss.explain()
            with self._lock:
                traces = self._kept["trace"]
                traces[-1] = attrs.astuple(
                    attrs.evolve(Moment(*traces[-1]), text=text), recurse=False
                )

    def moments(self) -> list[Moment]:
        """Return all remembered moments, in order of time."""
        with self._lock:
            found = [Moment(*each) for kept in self._kept.values() for each in kept]
        return sorted(found, key=lambda moment: (moment.at, moment.kind != "trace"))

    def clear(self) -> None:
        """Forget all moments."""
        with self._lock:
            self._kept.clear()
