"""Captures that break, and threads beside captures: generators, pools and the allocator are as they
were.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.runtime.runners.cuda.capture import record
from symshape.runtime.runners.cuda.pool import GraphPool

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CUDA = torch.device("cuda", 0)


def _waits(x: torch.Tensor) -> torch.Tensor:
    """Looks at its argument on the host, which breaks a capture."""
    return x * 2 if x.sum().item() > 0 else x * 3


def _drawn() -> torch.Tensor:
    return torch.randn(4, device=CUDA)


@pytest.mark.parametrize("draws", [False, True])
def test_random_numbers_after_a_capture_that_broke(draws: bool) -> None:
    """Torch leaves its generator as if the capture were going on."""
    x = _drawn()

    def breaks() -> torch.Tensor:
        return _waits(x + _drawn() if draws else x)

    with pytest.raises(RuntimeError):
        record(breaks, CUDA, GraphPool(), draws=draws)
    torch.manual_seed(3)
    first = _drawn()
    torch.manual_seed(3)
    assert torch.equal(_drawn(), first)
    graph, made, _ = record(lambda: x * 2, CUDA, GraphPool(), draws=False)
    graph.replay()
    assert torch.equal(made, x * 2)


@pytest.mark.parametrize("draws", [False, True])
def test_random_numbers_after_one_that_could_not_begin(
    draws: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = GraphPool()
    graph, made, _ = record(lambda: _drawn() * 2, CUDA, pool, draws=True)
    handle = pool.handle()
    del graph
    gc.collect()
    # what is left of a pool: torch takes no graph for it
    monkeypatch.setattr(GraphPool, "handle", lambda self: handle)
    with pytest.raises(RuntimeError, match="use_count"):
        record(lambda: made * 2, CUDA, pool, draws=draws)
    _drawn()


def test_no_memory_is_left_in_the_pool_of_a_broken_capture() -> None:
    x = torch.randn(1 << 22, device=CUDA)

    def breaks() -> torch.Tensor:
        return _waits((x * 2).exp())

    def reserved() -> int:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    with pytest.raises(RuntimeError):
        record(breaks, CUDA, GraphPool(), draws=False)
    before = reserved()
    for _ in range(5):
        with pytest.raises(RuntimeError):
            record(breaks, CUDA, GraphPool(), draws=False)
    assert reserved() <= before


def test_a_pool_goes_on_when_its_graphs_have_gone() -> None:
    x, pool = _drawn(), GraphPool()
    for _ in range(3):
        # made keeps what is left of the pool
        graph, made, _ = record(lambda: x * 2, CUDA, pool, draws=False)
        graph.replay()
        assert torch.equal(made, x * 2)
        del graph
        gc.collect()


def test_a_first_capture_that_fails_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is not refused for it."""
    end = torch.cuda.CUDAGraph.capture_end

    def fails(self: Any) -> None:
        end(self)
        raise KeyboardInterrupt

    model = nn.Linear(8, 8).cuda()
    compiled: Any = symshape.compile(model, dynamic=True, runner="padded")
    with torch.no_grad():
        compiled(torch.randn(3, 8, device=CUDA))
        compiled.reset()
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda.CUDAGraph, "capture_end", fails)
            with pytest.raises(KeyboardInterrupt):
                [compiled(torch.randn(n, 8, device=CUDA)) for n in (3, 4, 5)]
        for n in range(3, 20):
            x = torch.randn(n, 8, device=CUDA)
            torch.testing.assert_close(compiled(x), model(x))
    assert len(symshape.compiled_of(compiled)._graphs) >= 1


def _beside(act: Callable[[], object]) -> None:
    """Runs something in another thread, to its end."""
    errors: list[BaseException] = []

    def acts() -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=acts)
    thread.start()
    thread.join()
    assert not errors, errors


def test_a_thread_that_draws_in_the_middle_of_a_capture() -> None:
    """Torch has one generator a device; a program that draws nothing does without."""
    x = torch.ones(5, device=CUDA)

    def run() -> torch.Tensor:
        y = x * 2
        _beside(_drawn)
        return y + 1

    graph, made, _ = record(run, CUDA, GraphPool(), draws=False)
    graph.replay()
    assert torch.equal(made, x * 2 + 1)


def test_a_thread_that_waits_for_the_device_in_the_middle_of_a_capture() -> None:
    """An error in that thread, by CUDA; here it is captured again."""
    x, waited = torch.ones(5, device=CUDA), list[str]()

    def waits() -> None:
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            waited.append(str(error))

    def run() -> torch.Tensor:
        y = x * 2
        if not waited:
            _beside(waits)
        return y + 1

    graph, made, _ = record(run, CUDA, GraphPool(), draws=False)
    graph.replay()
    assert torch.equal(made, x * 2 + 1)
    assert "when stream is capturing" in waited[0]


@pytest.mark.parametrize("runner", ["padded", "cudagraph"])
def test_threads_that_capture_at_once(runner: Any) -> None:
    """They are on one stream, in one workspace of cuBLAS: one after the other, or memory is what it
    must not be.
    """
    torch.manual_seed(0)
    models = [nn.Sequential(*[nn.Linear(64, 64) for _ in range(20)]).cuda() for _ in range(4)]
    errors: list[BaseException] = []

    def calls(model: nn.Module) -> None:
        try:
            compiled: Any = symshape.compile(model, dynamic=True, runner=runner)
            with torch.no_grad():
                for n in (3, 3, 9, 9, 20, 20, 40, 40, 90, 90, 200, 200):
                    x = torch.ones(n, 64, device=CUDA)
                    torch.testing.assert_close(compiled(x), model(x), atol=1e-3, rtol=1e-3)
            assert len(symshape.compiled_of(compiled)._graphs) >= 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=calls, args=(model,)) for model in models]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors, errors


@pytest.mark.parametrize("runner", ["padded", "cudagraph"])
def test_a_thread_whose_first_act_is_a_served_call(runner: Any) -> None:
    """CUDA knows no context there yet, and C++ launches the graph."""
    model = nn.Linear(16, 8).cuda()
    compiled: Any = symshape.compile(model, dynamic=True, runner=runner)
    inputs = [torch.randn(n, 16, device=CUDA) for n in (4, 4, 5, 5, 4, 5, 4, 5)]
    with torch.no_grad():
        for x in inputs:
            compiled(x)
    expected, found = model(inputs[0]), list[torch.Tensor]()

    def act() -> None:
        with torch.no_grad():
            found.extend(compiled(inputs[0]) for _ in range(3))

    for _ in range(3):
        _beside(act)
    assert len(found) == 9
    for each in found:
        torch.testing.assert_close(each, expected)


def test_draws_follow_the_seed_after_captures() -> None:
    """The generator has its own state again."""
    x = torch.ones(8, device=CUDA)
    torch.manual_seed(5)
    first = [_drawn() for _ in range(3)]
    torch.manual_seed(5)
    second = []
    for _ in range(3):
        second.append(_drawn())
        record(lambda: x * 2, CUDA, GraphPool(), draws=False)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
