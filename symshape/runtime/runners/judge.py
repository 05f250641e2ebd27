"""Whether a padded program is faster than eager, here and at these sizes: a few calls are timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from symshape.runtime.runners.variants import Variant

__all__ = ["Judge"]

_TIMED = 3


class Judge:
    """Estimates what a call takes either way, in milliseconds.

    Eager takes as long as the host needs to launch it, or the device to run it, whichever is more.  The former is the
    same for all sizes; the latter is taken to be what eager's kernels need at the capacities, times the share of them
    that the call fills (a little less than that where cost grows with the square of a size).  A padded call takes as
    long as the host needs for it, or its replay.

    Args:
        repeats: whether a call may be made a few times over.

    Attributes:
        eager: host time of an eager call; None before it is known.
        padded: host time of a padded call; None before it is known.
    """

    def __init__(self, *, repeats: bool = True) -> None:
        self.eager: float | None = None
        self.padded: float | None = None
        self._repeats, self._runs = repeats, 0
        self._least: float | None = None
        self._seen = 0

    def time_eager(self, run: Callable[..., list[Any]], leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """The results of an eager call; what it takes is known after a few: the first at new sizes prepares libraries.

        A call is made a few times over, unless it has effects.
        """
        while True:
            start = time.perf_counter()
            results = run(leaves, values)
            self._least, self._runs = _least(self._least, start), self._runs + 1
            if self._runs >= _TIMED:
                self.eager = self._least
                return results
            if not self._repeats:
                return results

    def time_padded(self, start: float) -> None:
        """Notes a padded call that began at ``start`` on the clock of ``time.perf_counter``."""
        self._seen += 1
        self.padded = _least(self.padded, start)

    @property
    def settled(self) -> bool:
        """Whether enough padded calls were timed."""
        return self._seen >= _TIMED

    def prefers(self, variants: Sequence[Variant], fill: float) -> bool:
        """Whether the fastest of these ways to run a padded program is no slower than eager."""
        if self.eager is None or self.padded is None:
            return True
        return max(self.padded, variants[0].milliseconds or 0.0) <= max(self.eager, _device(variants) * fill)

    def device_bound(self, variants: Sequence[Variant]) -> bool:
        """Whether a padded call waits for the device rather than the host at these capacities."""
        return self.padded is not None and (variants[0].milliseconds or 0.0) > self.padded

    def lost(self, variants: Sequence[Variant], fill: float, share: float) -> float:
        """The milliseconds that a call takes longer than a padded one would at this share of the capacities."""
        if self.eager is None or self.padded is None:
            return 0.0
        fastest = variants[0].milliseconds or 0.0
        now = min(max(self.eager, _device(variants) * fill), max(self.padded, fastest))
        return max(0.0, now - max(self.padded, fastest * share))

    def __str__(self) -> str:
        if self.eager is None:
            return "nothing is timed yet"
        padded = "not timed yet" if self.padded is None else f"{self.padded:.3g} ms"
        return f"host time a call: eager {self.eager:.3g} ms, padded {padded}; the faster serves each size"


def _least(known: float | None, start: float) -> float:
    taken = (time.perf_counter() - start) * 1e3
    return taken if known is None else min(known, taken)


def _device(variants: Sequence[Variant]) -> float:
    """What eager's kernels need at the capacities."""
    return next((each.milliseconds or 0.0 for each in variants if each.kernels == "eager"), 0.0)
