"""How many questions each rung has settled: for tests, benchmarks and the curious."""

from __future__ import annotations

from typing import Final

from guards.asking.ladder import RUNGS

COUNTS: Final[dict[str, int]] = dict.fromkeys(RUNGS, 0)


def counters() -> dict[str, int]:
    """How many questions each rung has settled since the last :func:`reset_counters` (`unknown`: none did)."""
    return dict(COUNTS)


def reset_counters() -> None:
    """Sets all counters to zero."""
    for rung in COUNTS:
        COUNTS[rung] = 0
