"""What a capture does to torch's generator, its allocator and the pool, with CUDA's part played by
Python.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import symshape
from symshape.runtime.runners.cuda import capture
from symshape.runtime.runners.cuda.capture import (
    CaptureFailed,
    addresses,
    captured,
    loads_for_sizes,
    record,
    unowned,
)
from symshape.runtime.runners.cuda.pool import GraphPool

CUDA = torch.device("cuda", 0)


class State:
    """Of a generator, which is in a capture or is not."""

    capturing = False


class Generator:
    """One a device."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state or State()

    def graphsafe_get_state(self) -> Generator:
        return Generator(self.state)

    def graphsafe_set_state(self, other: Generator) -> None:
        self.state = other.state

    def clone_state(self) -> Generator:
        return Generator()

    def seed(self) -> int:
        return 0


class Graph:
    """Captures as torch does: what fails half way is left as it is."""

    device: Device

    def __init__(self, keep_graph: bool = False) -> None:
        self.keep_graph = keep_graph
        self.state: State | None = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        assert capture_error_mode == "thread_local"
        self.device.do("begin")
        self.pool = pool or object()
        self.device.users[self.pool] = self.device.users.get(self.pool, 0) + 1
        self.state = self.device.generator.state
        self.state.capturing = True
        self.device.underway.append(self.pool)
        self.device.do("begin late")

    def replay(self) -> None: ...

    def capture_end(self) -> None:
        self.device.do("end")
        self.device.underway.remove(self.pool)
        assert self.state is not None
        self.state.capturing = False


class Stream:
    """Counts how often it is waited for."""

    cuda_stream = 0
    waits = 0

    def synchronize(self) -> None:
        self.waits += 1

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


class Device:
    """What torch keeps of captures on a device.

    Attributes:
        fails: which of its steps fail next.
        stream: the stream that captures run on.
        underway: the pools that are allocated from.
        users: how many graphs each pool has.
    """

    def __init__(self) -> None:
        self.generator, self.fails, self.stream = Generator(), list[str](), Stream()
        self.underway, self.users, self.pools = list[Any](), dict[Any, int](), 0

    def do(self, step: str) -> None:
        if step in self.fails:
            self.fails.remove(step)
            raise RuntimeError(step)

    def end_allocation(self, device: int, pool: Any) -> None:
        if pool not in self.underway:
            raise RuntimeError("not recording")
        self.underway.remove(pool)

    def release(self, device: int, pool: Any) -> None:
        self.users[pool] -= 1

    def new_pool(self) -> Any:
        self.pools += 1
        return (0, self.pools)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    made = Device()
    kind = type("Graph", (Graph,), {"device": made})
    for name, value in {
        "CUDAGraph": kind,
        "default_generators": (made.generator,),
        "graph_pool_handle": made.new_pool,
        "current_stream": lambda device: Stream(),
        "stream": lambda stream: stream,
        "synchronize": lambda device: None,
        "current_device": lambda: 0,
        "empty_cache": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(capture, "capture_stream", lambda device, on: made.stream)
    monkeypatch.setattr(capture, "keep_workspace", lambda device, stream: None)
    monkeypatch.setattr(capture, "_end_allocation", made.end_allocation)
    monkeypatch.setattr(capture, "_release", made.release)
    yield made
    assert not made.underway
    assert not made.generator.state.capturing


def test_what_draws_nothing_is_captured_with_another_state(device: Device) -> None:
    own, inside = device.generator.state, list[bool]()
    graph, made, copies = record(
        lambda: inside.append(own.capturing) or 3, CUDA, GraphPool(), draws=False
    )
    assert (made, copies, inside) == (3, None, [False])
    assert device.generator.state is own
    assert graph.state is not own  # type: ignore[attr-defined]


def test_what_draws_is_captured_with_the_state_that_all_share(device: Device) -> None:
    own, inside = device.generator.state, list[bool]()
    graph, _, _ = record(lambda: inside.append(own.capturing), CUDA, GraphPool(), draws=True)
    assert inside == [True]
    assert graph.state is own  # type: ignore[attr-defined]


@pytest.mark.parametrize("draws", [False, True])
def test_the_beginning_of_a_capture_that_draws_is_waited_for(device: Device, draws: bool) -> None:
    record(lambda: 3, CUDA, GraphPool(), draws=draws)
    assert device.stream.waits == draws

    def fails() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(fails, CUDA, GraphPool(), draws=draws)
    assert device.stream.waits == 2 * draws


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("step", ["begin", "begin late", "end"])
def test_a_capture_that_breaks_leaves_nothing(device: Device, step: str, draws: bool) -> None:
    own, pool = device.generator.state, GraphPool()
    device.fails = [step]
    with pytest.raises(RuntimeError, match=step):
        record(lambda: 3, CUDA, pool, draws=draws)
    assert device.generator.state is own
    assert not device.users.get((0, 1), 0)
    assert record(lambda: 4, CUDA, pool, draws=draws)[1] == 4


@pytest.mark.parametrize("draws", [False, True])
def test_a_program_that_fails_in_a_capture(device: Device, draws: bool) -> None:
    def fails() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(fails, CUDA, GraphPool(), draws=draws)
    device.fails = ["end"]  # the capture is broken, too: the program's error is the one to know
    with pytest.raises(KeyboardInterrupt):
        record(fails, CUDA, GraphPool(), draws=draws)


@pytest.mark.slow
def test_memory_that_is_short_is_asked_for_twice(device: Device) -> None:
    asked = list[int]()

    def run() -> int:
        asked.append(1)
        if len(asked) == 1:
            raise torch.OutOfMemoryError("out of memory")
        return 5

    assert record(run, CUDA, GraphPool(), draws=False)[1] == 5
    assert gc.isenabled()


def test_a_pool_stays_as_long_as_it_has_a_graph(device: Device) -> None:
    pool = GraphPool()
    first = record(lambda: 1, CUDA, pool, draws=False)[0]
    second = record(lambda: 2, CUDA, pool, draws=False)[0]
    assert first.pool == second.pool  # type: ignore[attr-defined]
    del first
    third = record(lambda: 3, CUDA, pool, draws=False)[0]
    assert third.pool == second.pool  # type: ignore[attr-defined]
    del second, third
    gc.collect()
    assert record(lambda: 4, CUDA, pool, draws=False)[0].pool == (0, 2)  # type: ignore[attr-defined]


def test_one_that_failed_has_none(device: Device) -> None:
    pool = GraphPool()
    before = pool.handle()
    device.fails = ["end"]
    with pytest.raises(RuntimeError):
        record(lambda: 1, CUDA, pool, draws=False)
    assert pool.handle() != before


def test_one_is_captured_at_a_time(device: Device) -> None:
    order, inside, go_on = list[str](), threading.Event(), threading.Event()

    def slow() -> None:
        inside.set()
        go_on.wait(10)
        order.append("first")

    def captures(run: Any) -> threading.Thread:
        made = threading.Thread(target=lambda: record(run, CUDA, GraphPool(), draws=False))
        made.start()
        return made

    first = captures(slow)
    inside.wait(10)
    second = captures(lambda: order.append("second"))
    second.join(0.2)
    assert second.is_alive()
    go_on.set()
    first.join(10)
    second.join(10)
    assert order == ["first", "second"]


def test_what_another_thread_broke_is_captured_again(device: Device) -> None:
    class Invalidated(RuntimeError):
        error_code = 901

    tried = list[int]()

    def run() -> int:
        tried.append(1)
        if len(tried) == 1:
            raise Invalidated("operation failed due to a previous error during capture")
        return 5

    assert record(run, CUDA, GraphPool(), draws=False)[1] == 5
    tried.append(-10)

    def fails() -> None:
        tried.append(1)
        raise Invalidated("always")

    with pytest.raises(Invalidated):
        record(fails, CUDA, GraphPool(), draws=False)
    assert len(tried) == 5


@pytest.fixture
def runs(device: Device, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was run, in order: ``warm`` outside of a capture, ``captured`` inside one."""
    monkeypatch.setattr(torch.cuda.memory, "memory_stats_as_nested_dict", lambda device: {})
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(capture, "warmed_up_aside", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(capture, "unowned", lambda tensors, elsewhere: [*tensors])
    return []


def _program(device: Device, runs: list[str], result: torch.Tensor) -> Any:
    def run() -> list[torch.Tensor]:
        runs.append("captured" if device.underway else "warm")
        return [result]

    return run


def test_the_first_capture_is_behind_a_run_that_loads_kernels(
    device: Device, runs: list[str]
) -> None:
    made = captured(_program(device, runs, torch.ones(2)), CUDA, GraphPool(), draws=False)
    assert runs == ["warm", "captured"]
    assert made.loading > 0
    assert not made.in_vain


def test_a_capture_at_other_sizes_runs_nothing_before(device: Device, runs: list[str]) -> None:
    run = _program(device, runs, torch.ones(2))
    made = captured(run, CUDA, GraphPool(), draws=False, reads=[])
    assert runs == ["captured"]
    assert made.loading == 0


def test_what_cannot_be_captured_at_once_runs_before_another_attempt(
    device: Device, runs: list[str]
) -> None:
    device.fails = ["end"]
    run = _program(device, runs, torch.ones(2))
    made = captured(run, CUDA, GraphPool(), draws=False, reads=[])
    assert runs == ["captured", "warm", "captured"]
    assert made.loading > 0
    assert made.in_vain
    device.fails = ["end", "end"]
    with pytest.raises(CaptureFailed):
        captured(run, CUDA, GraphPool(), draws=False, reads=[])


def test_libraries_that_prepare_themselves_for_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    def graph(fn: Any) -> Any:
        with torch.no_grad():
            return symshape.trace(fn, torch.randn(4, 4), dynamic=False).graph

    assert not loads_for_sizes(graph(lambda x: (x @ x).softmax(-1)))
    assert loads_for_sizes(graph(lambda x: torch.fft.rfft(x).abs()))
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    assert loads_for_sizes(graph(lambda x: x + 1))


# -- results without ownership ---------------------------------------------------------------------


def test_the_same_memory_and_layout() -> None:
    kept = torch.arange(12.0)
    outside = torch.ones(3)
    made = [kept.view(3, 4).t(), kept[2:8:2], outside, torch.empty(0)]
    found = unowned(made, addresses([outside]))
    for mine, theirs in zip(found, made, strict=True):
        assert torch.equal(mine, theirs)
        assert (mine.stride(), mine.storage_offset(), mine.data_ptr()) == (
            theirs.stride(),
            theirs.storage_offset(),
            theirs.data_ptr(),
        )
    assert found[2] is outside
    assert (
        found[0].untyped_storage()._cdata
        == found[1].untyped_storage()._cdata
        != kept.untyped_storage()._cdata
    )
    kept.fill_(5)
    assert bool((found[0] == 5).all())


def test_lazily_conjugated_ones_stay() -> None:
    made = torch.ones(3, dtype=torch.complex64).conj()
    assert unowned([made], frozenset())[0] is made
