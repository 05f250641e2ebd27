"""The time that a device takes for some launches, without waiting for it."""

from __future__ import annotations

import time
from typing import Any

import torch

__all__ = ["DeviceTime"]


class DeviceTime:
    """A ``with`` block whose launches are timed on the current stream of a device.

    On a CPU the block itself is timed.

    Args:
        device: the device that computes.
    """

    __slots__ = ("_device", "_end", "_start")

    def __init__(self, device: torch.device) -> None:
        self._device = device
        cuda = device.type == "cuda"
        self._start: Any = torch.cuda.Event(enable_timing=True) if cuda else 0.0
        self._end: Any = torch.cuda.Event(enable_timing=True) if cuda else 0.0

    def __enter__(self) -> DeviceTime:
        if isinstance(self._start, float):
            self._start = time.perf_counter()
        else:
            self._start.record(torch.cuda.current_stream(self._device))
        return self

    def __exit__(self, *error: object) -> None:
        if isinstance(self._end, float):
            self._end = time.perf_counter()
        else:
            self._end.record(torch.cuda.current_stream(self._device))

    def milliseconds(self) -> float | None:
        """Return the ms between the first and the last launch; None while the device is at work."""
        if isinstance(self._end, float):
            return float(self._end - self._start) * 1e3
        return float(self._start.elapsed_time(self._end)) if self._end.query() else None

    def wait(self) -> float:
        """Return the ms between the first and the last launch, after waiting for the device."""
        if not isinstance(self._end, float):
            self._end.synchronize()
        return self.milliseconds() or 0.0
