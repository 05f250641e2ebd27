"""Timing of calls: samples in turn between the peers, so that a noisy minute of the machine hits
all of them alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter_ns
from typing import Any

import attrs

Call = Callable[[], Any]


@attrs.frozen
class Timing:
    """What a call costs. Units: µs a call."""

    median: float
    p99: float
    least: float
    samples: int

    @classmethod
    def of(cls, nanoseconds: Iterable[float]) -> Timing:
        """Summarise samples, each the nanoseconds of one call (or the mean of a batch)."""
        ordered = sorted(nanoseconds)
        if not ordered:
            raise ValueError("no sample to summarise")
        p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        return cls(statistics.median(ordered) / 1e3, p99 / 1e3, ordered[0] / 1e3, len(ordered))


def measure_together(
    calls: Mapping[str, Call],
    *,
    samples: int = 200,
    sample_us: float = 50.0,
    warmup: int = 3,
    synchronize: Call | None = None,
) -> dict[str, Timing]:
    """Time several calls in turn: one sample of each, then the next sample of each.

    A sample repeats a call until it lasts about `sample_us`, so that the clock's own cost does not
    count; its value is the mean of those repetitions. `synchronize` (for instance
    `torch.cuda.synchronize`) runs inside the timed region, once at the end of each sample. Units:
    `sample_us` in µs.
    """
    repeats: dict[str, int] = {}
    for name, call in calls.items():
        for _ in range(max(1, warmup)):
            call()
        repeats[name] = max(1, int(sample_us * 1e3 / max(1.0, _sample(call, 1, synchronize))))
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(samples):
        for name, call in calls.items():
            taken[name].append(_sample(call, repeats[name], synchronize))
    return {name: Timing.of(values) for name, values in taken.items()}


def measure(
    call: Call, *, samples: int = 200, sample_us: float = 50.0, synchronize: Call | None = None
) -> Timing:
    """Time one call; see `measure_together`, which is the fair way to compare two."""
    return measure_together(
        {"": call}, samples=samples, sample_us=sample_us, synchronize=synchronize
    )[""]


def measure_each(calls: Iterable[Call]) -> Timing:
    """Time each of many different calls once: first calls, which a repeated measurement would find
    in a cache.
    """
    taken = []
    for call in calls:
        start = perf_counter_ns()
        call()
        taken.append(float(perf_counter_ns() - start))
    return Timing.of(taken)


def _sample(call: Call, repeats: int, synchronize: Call | None) -> float:
    if synchronize is not None:
        synchronize()
    start = perf_counter_ns()
    for _ in range(repeats):
        call()
    if synchronize is not None:
        synchronize()
    return (perf_counter_ns() - start) / repeats
