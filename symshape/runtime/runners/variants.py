"""The ways to run one program on the same memory, and their timing."""

from __future__ import annotations

import time
from collections.abc import Sequence

import attrs
import torch

from symshape.runtime.runners.cuda.capture import Recording, Replay

__all__ = ["Variant", "measured"]

_REPEATS = 5
"""The replays of each variant where there are several; the median counts."""
_ALONE = 2
"""The replays of a single variant, which is only priced; the faster one counts: the first uploads
the graph.
"""


@attrs.frozen
class Variant:
    """A way to run a program.

    Attributes:
        kernels: whose kernels it runs: ``eager`` or ``inductor``.
        recording: the captured program.
        milliseconds: the time of a replay on the device, of a few; None if not measured.
    """

    kernels: str
    recording: Recording = attrs.field(repr=False)
    milliseconds: float | None = None


def measured(variants: Sequence[Variant], device: torch.device) -> tuple[Variant, ...]:
    """Return the variants with their times, the fastest first; they are timed in turn, for equal
    conditions.
    """
    times: list[list[float]] = [[] for _ in variants]
    for _ in range(_REPEATS if len(variants) > 1 else _ALONE):
        for variant, found in zip(variants, times, strict=True):
            found.append(_once(variant.recording.replay, device))
    middle = _REPEATS // 2 if len(variants) > 1 else 0
    pairs = zip(variants, times, strict=True)
    made = [attrs.evolve(each, milliseconds=sorted(found)[middle]) for each, found in pairs]
    return tuple(sorted(made, key=lambda each: each.milliseconds or 0.0))


def _once(replay: Replay, device: torch.device) -> float:
    """Return the milliseconds of one replay."""
    if device.type != "cuda":
        began = time.perf_counter()
        replay()
        return (time.perf_counter() - began) * 1e3
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))
