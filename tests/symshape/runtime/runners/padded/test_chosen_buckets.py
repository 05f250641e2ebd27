"""Buckets that nobody asked for: made once calls have paid for them, on a device and a clock of the
tests' own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch

import symshape
from symshape.options import Options
from symshape.runtime.padding import blueprint
from symshape.runtime.policy.estimates import Estimates
from symshape.runtime.runners.choice import Order
from symshape.runtime.runners.padded import chosen_buckets, runner
from symshape.runtime.runners.padded.bucket import Bucket, Variant
from symshape.runtime.runners.padded.runner import PaddedRunner
from tests.symshape.runtime.runners.fakes import instead_of


@attrs.define(slots=False)
class Device:
    """A device of the tests' own, and its clock. Units: ms."""

    eager: float = 5.0
    bucket: float = 0.2
    a_row: float = 0.01
    capture: float = 50.0
    now: float = 0.0
    total: float = 0.0

    def takes(self, host: float, whole: float = 0.0) -> None:
        """A call: of the host's time, and in all where the device takes longer."""
        self.now += host
        self.total += max(host, whole)


class Timed:
    """Runs op by op, in the device's time."""

    def __init__(self, order: Order, device: Device) -> None:
        self.order, self.device = order, device
        self.release, self.describe = order.eager.release, order.eager.describe
        self.fallback = self.run

    def run(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        self.device.takes(self.device.eager, self.device.a_row * leaves[0].shape[0])
        return self.order.eager.run(leaves, values)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    made, ready, call = Device(), Bucket._ready, Bucket.call

    def captured(self: Bucket) -> Any:
        new, replay = self.recording is None, ready(self)
        assert self.recording is not None
        if new:
            made.takes(made.capture)
        return replay

    def called(self: Bucket, *args: Any) -> list[Any]:
        results = call(self, *args)
        made.takes(made.bucket, made.a_row * next(iter(self.made.caps.values())))
        return results

    def read_times(self: Bucket) -> bool:
        assert self.recording is not None
        rows = next(iter(self.made.caps.values()))
        self.variants = (Variant("eager", self.recording, made.a_row * rows),)
        return True

    def judged(order: Order) -> PaddedRunner:
        timed = Timed(order, made)
        return PaddedRunner(
            order.program, timed, order.graphs, order.options, note=order.note, where_it_pays=True
        )

    clock = SimpleNamespace(perf_counter=lambda: made.now / 1e3, monotonic=lambda: made.now / 1e3)
    monkeypatch.setattr(Bucket, "_ready", captured)
    monkeypatch.setattr(Bucket, "call", called)
    monkeypatch.setattr(Bucket, "read_times", read_times)
    monkeypatch.setattr(Bucket, "launched", lambda self, leaves, placement: None)
    for module in (blueprint, chosen_buckets, runner):  # every clock that a price is measured by
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(chosen_buckets, "estimates_of", lambda graph: Estimates(0.1, 1e-3, 75.0))
    with instead_of("padded", judged):
        yield made


def _compiled(limit: int = 8) -> Any:
    return symshape.compile(
        lambda x: x.cumsum(0) * 2,
        dynamic=True,
        runner="padded",
        options=Options(max_cuda_graphs=limit),
    )


def _calls(compiled: Any, rows: int, times: int = 1) -> None:
    for _ in range(times):
        x = torch.randn(rows)
        torch.testing.assert_close(compiled(x), x.cumsum(0) * 2)


def _caps(compiled: Any) -> list[int]:
    (entry,) = compiled.entries
    return sorted(next(iter(each.made.caps.values())) for each in entry.runner.buckets)


def test_calls_run_eagerly_until_they_have_paid_for_a_bucket(device: Device) -> None:
    compiled = _compiled()
    _calls(compiled, 97, 3)
    assert _caps(compiled) == []
    _calls(compiled, 97, 20)
    assert _caps(compiled) == [104]
    before = device.total
    _calls(compiled, 97, 10)
    assert device.total - before == pytest.approx(10 * 1.04)


def test_sizes_that_never_repeat_share_one_bucket(device: Device) -> None:
    compiled, rng = _compiled(), random.Random(0)
    for _ in range(100):
        _calls(compiled, rng.randint(2, 128))
    assert _caps(compiled) == [128], "the host bounds a call: nothing finer saves enough"
    before = device.total
    _calls(compiled, 61, 10)
    assert device.total - before < 20


def test_a_stream_is_never_far_behind_eager(device: Device) -> None:
    # a capture is 80 calls, and a wide bucket no faster than eager
    device.a_row, device.capture = (0.05, 400.0)
    compiled, rng = _compiled(), random.Random(0)
    eager = 0.0
    for _ in range(400):
        rows = round(2 ** rng.uniform(1, 8))
        eager += max(device.eager, device.a_row * rows)
        _calls(compiled, rows)
        assert device.total <= 1.25 * eager + 1000
    assert device.total < 1.1 * eager + 2 * device.capture


def test_a_finer_bucket_is_made_for_what_it_saves_beyond_a_wider_one(device: Device) -> None:
    device.a_row, device.eager = 0.05, 30.0
    compiled = _compiled()
    _calls(compiled, 500, 40)
    assert _caps(compiled) == [512]
    _calls(compiled, 30, 1)
    # 512 rows take 25.6 ms, 32 rows 1.6: 24 ms saved a call, and a bucket is 50
    assert _caps(compiled) == [512]
    _calls(compiled, 30, 5)
    assert _caps(compiled) == [32, 512]


def test_what_cannot_gain_makes_nothing(device: Device) -> None:
    device.eager, device.bucket = 0.1, 5.0
    device.a_row = 1.0  # eager waits for the device, too
    compiled, rng = _compiled(), random.Random(0)
    for _ in range(200):
        _calls(compiled, rng.randint(50, 100))
    assert len(_caps(compiled)) <= 1, (
        "the first may be an error of the estimates, and is not repeated"
    )


def test_none_is_made_where_there_is_no_room(device: Device) -> None:
    compiled = _compiled(limit=1)
    for rows in (500, 30):
        _calls(compiled, rows, 60)
    assert len(_caps(compiled)) == 1


def test_a_first_call_that_loads_a_kernel_does_not_end_a_bucket(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    takes = device.takes

    def loading(host: float, whole: float = 0.0) -> None:
        if host == device.bucket:
            calls.append(1)
            host += 20.0 * (len(calls) == 3)  # the first whose time on the host counts
        takes(host, whole)

    monkeypatch.setattr(device, "takes", loading)
    compiled = _compiled()
    _calls(compiled, 97, 40)
    assert _caps(compiled) == [104]
    assert len(calls) > 20


def test_a_planned_bucket_serves_at_once(device: Device) -> None:
    compiled = _compiled()
    _calls(compiled, 97)
    compiled.warm_up([(128,)], progress=False)
    before = device.total
    _calls(compiled, 97, 10)
    assert device.total - before < 30
    assert _caps(compiled) == [128]


def test_a_report_says_what_was_made_and_what_has_credit(device: Device) -> None:
    compiled = _compiled()
    _calls(compiled, 97, 40)
    _calls(compiled, 3, 1)
    report = compiled.report()
    assert "a bucket costs" in report
    assert "offer a bucket up to x.size(0) 104: made in" in report
    assert "ms saved" in report


def test_a_bucket_without_memory_costs_its_calls_nothing(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = _compiled()
    tried: list[int] = []

    def full(self: Bucket) -> Any:
        tried.append(1)
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(Bucket, "_ready", full)
    _calls(compiled, 97, 200)
    assert _caps(compiled) == []
    assert 1 <= len(tried) <= 4, "its price rises each time"


def test_a_bucket_is_timed_by_the_calls_that_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making one runs the program once for its call, and no more."""
    ran: list[int] = []
    replay, place = Bucket._again, Bucket._timed_replay

    def counted(self: Bucket) -> Any:
        ran.append(1)
        return replay(self)

    timed: list[Bucket] = []

    def noted(self: Bucket, replayed: Any) -> Any:
        timed.append(self)
        return place(self, replayed)

    monkeypatch.setattr(Bucket, "_again", counted)
    monkeypatch.setattr(Bucket, "_timed_replay", noted)

    def judged(order: Order) -> PaddedRunner:
        return PaddedRunner(
            order.program, order.eager, order.graphs, order.options, where_it_pays=True
        )

    with instead_of("padded", judged):
        compiled = _compiled()
        _calls(compiled, 97)
        compiled.warm_up([(128,)], progress=False)
        ran.clear()
        for number in range(1, 5):
            _calls(compiled, 97)
            assert len(ran) == number
        assert len(timed) == 2
    (bucket,) = compiled.entries[0].runner.buckets
    assert bucket.read_times()
    assert (bucket.variants[0].milliseconds or 0) > 0


def test_which_captures_need_no_run_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a program that was captured on the stream, unless a library prepares itself."""
    compiled = _compiled()
    _calls(compiled, 97)
    runner = compiled.entries[0].runner
    finder, (bucket,) = runner._finder, runner.buckets
    assert finder._is_loaded()
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    assert not finder._is_loaded()
    monkeypatch.undo()
    bucket.prepares = True
    assert not finder._is_loaded(), "it was tried once"
    finder.clear()
    assert not finder._is_loaded()
