"""The time that the caller's loop takes beside forward and backward, while the device waits.

A step of training is as long as the host needs for it, or the device, whichever is more.  What an
optimizer needs on the host is time in which the device works off forward and backward.  So larger
buckets pay in a loop with an optimizer than in one without.
"""

from __future__ import annotations

import time

import torch

from symshape.runtime.policy.estimates import Typical
from symshape.runtime.runners.device_time import DeviceTime

__all__ = ["LoopTime"]

_FIRST, _EVERY = 16, 16
"""The number of first calls that are timed; after them, every sixteenth is."""


class LoopTime:
    """The spare time of a loop, from some of its steps.

    Args:
        device: the device that computes.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._calls = 0
        self._start = 0.0
        self._timed: DeviceTime | None = None
        self._ended = False
        self._spare = Typical()

    def forward_begins(self) -> float | None:
        """Note the begin of a forward, which ends the step before it.

        Returns:
            The ms a step in which the device has done forward and backward and waits for the
            host; None if this call tells nothing new.
        """
        now, found = time.perf_counter(), None
        if self._timed is not None and self._ended:
            worked = self._timed.milliseconds()
            step = (now - self._start) * 1e3
            # at work still: the device, and not the host, takes the time of a step
            found = self._spare.saw(0.0 if worked is None else max(0.0, step - worked))
        self._timed, self._ended = None, False
        self._calls += 1
        if self._calls <= _FIRST or self._calls % _EVERY in (0, 1):
            self._start = now
            self._timed = DeviceTime(self._device).__enter__()
        return found

    def backward_ends(self) -> None:
        """Note the end of a backward; the first one after a forward counts."""
        if self._timed is not None and not self._ended:
            self._timed.__exit__()
            self._ended = True
