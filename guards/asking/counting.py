"""Counters of the questions that each rung has settled, for tests and benchmarks."""

from __future__ import annotations

from typing import Final

from guards.asking.ladder import RUNGS

COUNTS: Final[dict[str, int]] = dict.fromkeys(RUNGS, 0)


def counters() -> dict[str, int]:
    """Return the number of questions by the rung that settled them, since the last
    :func:`reset_counters`.

    ``unknown`` counts those that no rung settled.
    """
    return dict(COUNTS)


def reset_counters() -> None:
    """Set all counters to zero."""
    for rung in COUNTS:
        COUNTS[rung] = 0
