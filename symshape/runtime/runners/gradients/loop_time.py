"""The time that the caller's loop takes beside forward and backward, while the device may work.

A step of training is as long as the host needs for it, or the device, whichever is more.  What an
optimizer needs on the host is time in which the device works off forward and backward.  So larger
buckets pay in a loop with an optimizer than in one without.
"""

from __future__ import annotations

import time

import attrs
import torch

from symshape.runtime.policy.estimates import Slack
from symshape.runtime.runners.device_time import DeviceTime

__all__ = ["LoopTime"]

_FIRST, _EVERY = 16, 16
"""The number of first calls that are timed; after them, every sixteenth is."""


@attrs.define(eq=False)
class _Step:
    """A step that is timed: the host's times of its begin and of the end of its backward, in s."""

    start: float
    device: DeviceTime
    end: float | None = None


class LoopTime:
    """The slack of a loop, from some of its steps.

    Args:
        device: the device that computes.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._calls = 0
        self._step: _Step | None = None
        self._slack = Slack()

    def forward_begins(self) -> float | None:
        """Note the begin of a forward, which ends the step before it.

        Returns:
            The ms a step in which the device may go on with forward and backward while the host
            does something else; None if this call tells nothing new.
        """
        now, found = time.perf_counter(), None
        step, self._step = self._step, None
        if step is not None and step.end is not None:
            whole, host = (now - step.start) * 1e3, (step.end - step.start) * 1e3
            found = self._slack.saw(whole, host, step.device.milliseconds())
        self._calls += 1
        if self._calls <= _FIRST or self._calls % _EVERY in (0, 1):
            self._step = _Step(now, DeviceTime(self._device).__enter__())
        return found

    def backward_ends(self) -> None:
        """Note the end of a backward; the first one after a forward counts."""
        step = self._step
        if step is not None and step.end is None:
            step.device.__exit__()
            step.end = time.perf_counter()
