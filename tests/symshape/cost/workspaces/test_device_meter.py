"""The meter of a device: where it refuses, and how it reads torch's history (on the CPU, CUDA's
part played).
"""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from symshape.cost.workspaces import device_meter
from symshape.torch_internals import cuda

DEVICE = torch.device("cuda", 0)


def _play(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Play a CUDA device whose calls append to a list."""
    said: list[str] = []
    stream = SimpleNamespace(
        cuda_stream=7,
        wait_stream=lambda other: said.append("wait"),
        synchronize=lambda: said.append("synchronize"),
    )

    def record(enabled: Any, **options: Any) -> None:
        said.append(f"history {enabled}")

    def snapshot() -> dict[str, Any]:
        events = [
            {"action": "alloc", "addr": 100, "size": 4096, "stream": 7},
            {"action": "segment_alloc", "addr": 200, "size": 2**21, "stream": 7},
            {"action": "alloc", "addr": 900, "size": 64, "stream": 0},
            {"action": "alloc", "addr": 200, "size": 1000, "stream": 7},
            {"action": "free_requested", "addr": 200, "size": 1000, "stream": 7},
            {"action": "free_completed", "addr": 200, "size": 1000, "stream": 7},
        ]
        return {"device_traces": [events]}

    for name, played in (
        *(
            ("is_available", lambda: True),
            ("get_allocator_backend", lambda: "native"),
            ("MemPool", object),
        ),
        *(("current_stream", lambda device: stream), ("device", lambda device: nullcontext())),
        *(
            ("stream", lambda each: nullcontext()),
            ("use_mem_pool", lambda pool, device: nullcontext()),
        ),
    ):
        monkeypatch.setattr(torch.cuda, name, played)
    monkeypatch.setattr(device_meter, "warm_up_stream", lambda device: stream)
    monkeypatch.setattr(cuda, "record_history", record)
    monkeypatch.setattr(cuda, "allocator_snapshot", snapshot)
    monkeypatch.setattr(cuda, "records_history", lambda: False)
    monkeypatch.setattr(cuda, "is_capturing", lambda: False)
    return said


def test_the_second_run_of_a_call_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    said = _play(monkeypatch)
    meter = device_meter.device_meter(DEVICE)
    assert meter is not None

    def prepare() -> Any:
        said.append("prepare")

        def call() -> int:
            said.append("call")
            return 3

        return call

    found = meter(prepare, lambda result, events: (result, events))
    assert said == ["wait", "prepare", "call", "history all", "call", "history None", "synchronize"]
    assert found == (3, [(100, 4096), (200, 1000), (200, 0)]), "of its stream, in order"


def test_the_history_ends_where_a_call_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    said = _play(monkeypatch)
    meter = device_meter.device_meter(DEVICE)
    assert meter is not None
    outcomes = iter([None, RuntimeError("no algorithm")])

    def call() -> None:
        if (error := next(outcomes)) is not None:
            raise error

    with pytest.raises(RuntimeError, match="no algorithm"):
        meter(lambda: call, lambda result, events: None)
    assert said[-2:] == ["history all", "history None"]


@pytest.mark.parametrize(
    ("where", "name", "played"),
    [
        (torch.cuda, "is_available", lambda: False),
        (torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync"),
        (cuda, "records_history", lambda: True),
        (cuda, "is_capturing", lambda: True),
        (cuda, "record_history", None),
        (cuda, "allocator_snapshot", None),
    ],
)
def test_where_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, played: Any
) -> None:
    _play(monkeypatch)
    assert device_meter.device_meter(DEVICE) is not None
    monkeypatch.setattr(where, name, played)
    assert device_meter.device_meter(DEVICE) is None


def test_a_cpu_is_not_measured() -> None:
    assert device_meter.device_meter(torch.device("cpu")) is None
