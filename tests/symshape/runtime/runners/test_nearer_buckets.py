"""Buckets nearer to the sizes: made when calls have lost without them what making them takes, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import torch

import symshape
from symshape.options import Options
from symshape.runtime.runners.bucket import Bucket
from symshape.runtime.runners.choice import Order
from symshape.runtime.runners.judge import Judge
from symshape.runtime.runners.padded import PaddedRunner
from symshape.runtime.runners.variants import Variant
from tests.symshape.runtime.runners.fakes import instead_of

_CAPTURE = 40.0


@attrs.define
class Device:
    """A device of the tests' own: what calls take there, in ms."""

    eager: float = 1.0
    padded: float = 0.2
    a_row: float = 0.1


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    made, ready = Device(), Bucket._ready

    def timed(self: Bucket) -> Any:
        replay = ready(self)
        assert self.recording is not None
        rows = next(iter(self.made.caps.values()))
        self.variants = (Variant("eager", self.recording, made.a_row * rows),)
        self.milliseconds, self.planned_ms = _CAPTURE - 10, 10.0
        return replay

    monkeypatch.setattr(Bucket, "_ready", timed)
    with instead_of("padded", lambda order: _judged(order, made)):
        yield made


def _judged(order: Order, device: Device) -> PaddedRunner:
    judge = Judge()
    judge.eager, judge.padded, judge._seen = device.eager, device.padded, 99
    return PaddedRunner(order.program, order.eager, order.graphs, order.options, judge, note=order.note)


def _compiled(limit: int = 8) -> Any:
    return symshape.compile(
        lambda x: x.cumsum(0) * 2, dynamic=True, runner="padded", options=Options(max_cuda_graphs=limit)
    )


def _calls(compiled: Any, rows: int, times: int) -> None:
    for _ in range(times):
        x = torch.randn(rows)
        torch.testing.assert_close(compiled(x), x.cumsum(0) * 2)


def _caps(compiled: Any) -> list[int]:
    (entry,) = compiled.entries
    return sorted(next(iter(each.made.caps.values())) for each in entry.runner.buckets)


def test_calls_pay_for_a_nearer_bucket_before_it_is_made(device: Device) -> None:
    compiled = _compiled()
    _calls(compiled, 97, 1)
    assert _caps(compiled) == [128]
    # eager takes 9.7 ms, up to 128 12.8; up to 104 it would be 10.4: nothing is lost yet
    _calls(compiled, 97, 200)
    assert _caps(compiled) == [128]
    device.eager = 50.0  # but eager waits for the host in this one: 2.4 ms are lost a call
    compiled = _compiled()
    _calls(compiled, 97, 17)
    assert _caps(compiled) == [128]
    _calls(compiled, 97, 2)
    assert _caps(compiled) == [104, 128]
    _calls(compiled, 99, 1)  # never seen, and near, too
    (entry,) = compiled.entries
    served = {values: dict(bucket.made.caps) for values, bucket in entry.runner.served().items()}
    assert served == {(97,): {"s0": 104}, (99,): {"s0": 104}}
    _calls(compiled, 120, 30)  # nothing nearer than 128 is worth it
    assert _caps(compiled) == [104, 128]


def test_what_the_host_bounds_needs_none(device: Device) -> None:
    device.eager, device.padded = 50.0, 20.0
    compiled = _compiled()
    _calls(compiled, 97, 200)
    assert _caps(compiled) == [128]


def test_sizes_that_come_seldom_cost_no_captures(device: Device) -> None:
    device.eager = 50.0
    compiled = _compiled()
    for rows in range(97, 129):
        _calls(compiled, rows, 1)
    assert len(_caps(compiled)) <= 2, "40 ms each, and they lose 30 in all"


def test_none_is_made_where_there_is_no_room(device: Device) -> None:
    device.eager = 50.0
    compiled = _compiled(limit=1)
    _calls(compiled, 97, 100)
    assert len(_caps(compiled)) == 1


def test_planned_buckets_stay_as_they_are(device: Device) -> None:
    device.eager = 50.0
    compiled = _compiled()
    _calls(compiled, 97, 1)
    compiled.warm_up([(128,)], progress=False)
    _calls(compiled, 97, 100)
    assert _caps(compiled) == [128]
