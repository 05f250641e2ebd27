"""What a loop's steps show of the time in which the device may go on with forward and backward."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from symshape.runtime.runners.gradients import loop_time
from symshape.runtime.runners.gradients.loop_time import LoopTime


class Clock:
    """The host's time, in s, and the device's time for the next forward and backward, in ms."""

    now = 0.0
    device: float | None = 0.0

    def perf_counter(self) -> float:
        return self.now

    def timed(self, device: torch.device) -> Clock:
        return self

    def __enter__(self) -> Clock:
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()

    def leave(self) -> None: ...

    def milliseconds(self) -> float | None:
        return self.device


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(loop_time, "time", SimpleNamespace(perf_counter=made.perf_counter))
    monkeypatch.setattr(loop_time, "DeviceTime", made.timed)
    return made


def _steps(loop: LoopTime, clock: Clock, host: float, device: float | None, rest: float) -> object:
    """Return what the begin after a few such steps tells."""
    clock.device = device
    found = None
    for _ in range(4):
        loop.forward_begins()
        clock.now += host / 1e3
        loop.backward_ends()
        loop.backward_ends()  # a second one, of the same forward
        clock.now += rest / 1e3
        found = loop.forward_begins()
    return found


def test_an_optimizer_is_time_for_the_device(clock: Clock) -> None:
    loop = LoopTime(torch.device("cuda"))
    assert loop.forward_begins() is None
    assert _steps(loop, clock, 10.0, 9.0, 6.0) == pytest.approx(6.0)
    # the device needs all the time that there is: none is left, and as much may run meanwhile
    assert _steps(loop, clock, 3.0, 8.5, 6.0) == pytest.approx(6.0)


def test_a_wait_for_the_device_is_none(clock: Clock) -> None:
    loop = LoopTime(torch.device("cuda"))
    _steps(loop, clock, 10.0, 10.0, 20.0)
    assert _steps(loop, clock, 3.0, 15.0, 12.0 + 20.0) == pytest.approx(0.0)


def test_a_device_that_is_at_work_still(clock: Clock) -> None:
    loop = LoopTime(torch.device("cuda"))
    _steps(loop, clock, 10.0, 9.0, 6.0)
    assert _steps(loop, clock, 3.0, None, 6.0) == 0.0


def test_calls_without_a_backward_tell_nothing(clock: Clock) -> None:
    loop = LoopTime(torch.device("cuda"))
    for _ in range(40):
        assert loop.forward_begins() is None
        clock.now += 0.01


def test_not_every_step_is_timed(clock: Clock) -> None:
    loop = LoopTime(torch.device("cuda"))
    told = 0
    for _ in range(161):
        told += loop.forward_begins() is not None
        clock.now += 0.01
        loop.backward_ends()
    assert told == 16 + 2 * (160 - 16) // 16


def test_a_step_that_another_thread_begins_meanwhile(clock: Clock) -> None:
    """The end of the first step's backward is not the end of the second one's."""
    loop = LoopTime(torch.device("cuda"))
    loop.forward_begins()

    def other() -> None:
        clock.leave = lambda: None  # type: ignore[method-assign]
        loop.forward_begins()

    clock.leave = other  # type: ignore[method-assign]
    loop.backward_ends()
    clock.now += 0.01
    assert loop.forward_begins() is None
