"""The time that the quick look-up of a warm call takes, measured now and then."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from symshape.runtime.cache import EntryCache
from symshape.runtime.variables import Layout

_SAMPLES = 512


class LookUps:
    """The last look-up times of one compiled function, in µs."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=_SAMPLES)

    def time(self, cache: EntryCache, layout: Layout, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Time the look-up of a call; record nothing where the call cache does not know the call."""
        for _ in range(3):  # the first warms the machine's caches
            start = time.perf_counter()
            leaves = layout.quick(args, kwargs)
            if cache.find_exact(cache.makers[len(leaves)](leaves, kwargs)) is None:
                return
            elapsed = (time.perf_counter() - start) * 1e6
        self._times.append(elapsed)

    def median(self) -> float | None:
        """Return the median in µs; None before the first sample."""
        times = sorted(self._times)
        return times[len(times) // 2] if times else None

    def clear(self) -> None:
        """Forget the samples."""
        self._times.clear()
