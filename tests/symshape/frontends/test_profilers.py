"""Entries in people's profilers: named ranges with figures while one records, nothing otherwise."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import symshape
from symshape.frontends import profilers

WEIGHT = torch.ones(4, 5)


def product(x: torch.Tensor) -> torch.Tensor:
    return x @ WEIGHT


def _flops(rows: int) -> int:
    return 2 * rows * 4 * 5


@pytest.mark.filterwarnings(
    "ignore:.*Profiler clears events at the end of each cycle"
)  # by torch 2.11, of itself
def test_torchs_profiler_shows_entries() -> None:
    compiled = symshape.compile(product, dynamic=True)
    compiled(torch.ones(3, 4))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        for rows in (3, 7, 3):
            compiled(torch.ones(rows, 4))
    found = [each for each in recorded.key_averages() if "product" in each.key]
    assert [(each.key, each.count) for each in found] == [("product (entry 0, eager)", 3)]


@pytest.fixture
def proton(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for Triton's profiler: what it was told."""
    flags = types.SimpleNamespace(profiling_on=False)
    seen: list[tuple[str, dict[str, int]]] = []

    @contextmanager
    def scope(name: str, metrics: dict[str, int]) -> Iterator[None]:
        seen.append((name, metrics))
        yield

    module: Any = types.ModuleType("triton.profiler")
    module.scope, module.seen, module.on = scope, seen, flags
    place: Any = types.ModuleType("triton.profiler.flags")
    place.flags = flags
    monkeypatch.setitem(sys.modules, "triton.profiler", module)
    monkeypatch.setitem(sys.modules, "triton.profiler.flags", place)
    yield module
    monkeypatch.undo()
    profilers.refresh()


def test_proton_gets_operations_and_bytes(proton: Any) -> None:
    compiled = symshape.compile(product, dynamic=True)
    compiled(torch.ones(3, 4))
    assert proton.seen == []
    proton.on.profiling_on = True
    for rows in (3, 7):
        compiled(torch.ones(rows, 4))
    proton.on.profiling_on = False
    compiled(torch.ones(7, 4))
    expected = [
        (
            "product (entry 0, eager)",
            {"flops": _flops(rows), "bytes": 4 * (rows * 4 + 20 + rows * 5)},
        )
        for rows in (3, 7)
    ]
    assert proton.seen == expected


def test_the_layout_of_proton_before(monkeypatch: pytest.MonkeyPatch) -> None:
    place: Any = types.ModuleType("triton.profiler.flags")
    place.profiling_on = True
    monkeypatch.setitem(sys.modules, "triton.profiler.flags", place)
    profilers.refresh()
    assert profilers.other.profiling_on
    monkeypatch.undo()
    profilers.refresh()
    assert not profilers.other.profiling_on


def test_nsight_gets_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: list[str] = []
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", pushed.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: pushed.append("pop"))
    compiled = symshape.compile(product, dynamic=True)
    try:
        compiled(torch.ones(3, 4))
    finally:
        monkeypatch.undo()
        profilers.refresh()
    assert pushed == [
        f"product (entry 0, eager): flops={_flops(3)}, bytes={4 * (12 + 20 + 15)}",
        "pop",
    ]


def test_without_a_profiler_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*args: Any) -> Any:
        raise AssertionError("no profiler is recording")

    monkeypatch.setattr(profilers.Annotator, "run", run)
    compiled = symshape.compile(product, dynamic=True)
    for _ in range(300):
        compiled(torch.ones(3, 4))


def test_a_program_whose_cost_depends_on_data_is_named_without_figures(proton: Any) -> None:
    proton.on.profiling_on = True
    compiled = symshape.compile(lambda x: x.nonzero() @ x.new_ones(1, 3).long(), dynamic=True)
    compiled(torch.ones(3))
    proton.on.profiling_on = False
    ((name, figures),) = proton.seen
    assert "entry 0" in name
    assert figures == {}


def test_what_raises_is_raised_and_the_range_ends() -> None:
    compiled = symshape.compile(lambda x, i: x[i], dynamic=True)
    compiled(torch.ones(3), torch.tensor([1]))
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
        pytest.raises(IndexError),
    ):
        compiled(torch.ones(3), torch.tensor([5]))
    assert compiled(torch.ones(4), torch.tensor([3])).tolist() == [1]
