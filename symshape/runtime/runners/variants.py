"""The ways to run one program on the same memory, and their timing."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch

from symshape.runtime.runners.cuda.capture import Recording
from symshape.runtime.runners.device_time import DeviceTime

__all__ = ["Variant", "measured"]

_REPEATS = 5
"""The replays of each variant; the median counts."""


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
    for _ in range(_REPEATS):
        for variant, found in zip(variants, times, strict=True):
            with DeviceTime(device) as timed:
                variant.recording.replay()
            found.append(timed.wait())
    pairs = zip(variants, times, strict=True)
    made = [attrs.evolve(each, milliseconds=sorted(found)[_REPEATS // 2]) for each, found in pairs]
    return tuple(sorted(made, key=lambda each: each.milliseconds or 0.0))
