"""Times that nobody waits for: of the block itself on a CPU, of its events on a device."""

from __future__ import annotations

import time

import pytest
import torch

from symshape.runtime.runners.device_time import DeviceTime


def test_on_a_cpu_the_block_is_timed() -> None:
    with DeviceTime(torch.device("cpu")) as timed:
        time.sleep(0.002)
    assert 2 <= (timed.milliseconds() or 0) == timed.wait()


class Event:
    """An event of a device that needs a while."""

    now = 0

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing
        self.at: int | None = None

    def record(self, stream: object) -> None:
        assert stream == "the stream of cuda:1"
        Event.now += 7
        self.at = Event.now

    def query(self) -> bool:
        return self.at is not None and Event.now >= self.at + 10

    def synchronize(self) -> None:
        Event.now += 100

    def elapsed_time(self, end: Event) -> float:
        assert self.at is not None
        assert end.query()
        return float((end.at or 0) - self.at)


def test_on_a_device_the_time_is_known_once_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"the stream of {device}")
    with DeviceTime(torch.device("cuda", 1)) as timed:  # whatever the current device is
        pass
    assert timed.milliseconds() is None
    assert timed.wait() == 7
    assert timed.milliseconds() == 7
