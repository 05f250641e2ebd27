"""Things that go wrong around padded programs: right results or a clear error, the cache whole,
nothing leaked.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import Options, events
from symshape.runtime.runners.cuda.capture import CaptureFailed, Recording
from symshape.runtime.runners.padded import bucket as bucket_module
from symshape.runtime.runners.padded.bucket import Bucket
from symshape.runtime.runners.padded.runner import PaddedRunner
from tests.meta_fns.padding.poison import assert_same

MIXED = int(os.environ.get("SYMSHAPE_FAULTS", "80"))
"""How many faults are mixed; 500 by hand (``SYMSHAPE_FAULTS=500``)."""


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).eval()


def _padded(model: Callable[..., Any], **options: Any) -> Any:
    compiled = symshape.compile(
        model, dynamic={"input": {0: "rows"}}, runner="padded", options=Options(**options)
    )
    return symshape.compiled_of(compiled) if isinstance(compiled, nn.Module) else compiled


@contextmanager
def _failing(error: BaseException, when: str = "capture", times: int = 1) -> Iterator[list[int]]:
    """While it lasts, the next captures (or replays) raise an error; how often they did."""
    raised = [0]

    def fail() -> None:
        if raised[0] < times:
            raised[0] += 1
            raise error

    original = bucket_module.captured

    def captured(run: Any, device: torch.device, pool: Any, **more: Any) -> Recording:
        if when == "capture":
            fail()
        made = original(run, device, pool, **more)
        if when == "capture":
            return made

        def replay() -> Any:
            fail()
            return made.replay()

        return Recording(replay)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucket_module, "captured", captured)
        yield raised


@contextmanager
def _heard() -> Iterator[list[str]]:
    found: list[str] = []
    unsubscribe = events.subscribe(
        lambda e: found.append(e.reason) if isinstance(e, events.RunnerFallback) else None
    )
    try:
        yield found
    finally:
        unsubscribe()


def _right(compiled: Any, model: nn.Module, rows: int, dtype: torch.dtype = torch.float32) -> None:
    with torch.no_grad():
        x = torch.randn(rows, 6).to(dtype)
        assert_same(
            compiled(x),
            model(x),
            f"{rows} rows",
            tolerance=1e-4 if dtype is torch.float32 else 5e-2,
        )


def _call(compiled: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        made: torch.Tensor = compiled(x)
        return made


def _runner(compiled: Any) -> PaddedRunner:
    runner: PaddedRunner = compiled.entries[-1].runner
    return runner


def test_out_of_memory_in_a_capture_is_tried_again_later() -> None:
    model = _model()
    compiled = _padded(model, max_cuda_graphs=4)
    _right(compiled, model, 3)
    with (
        _heard() as reasons,
        _failing(torch.OutOfMemoryError("CUDA out of memory"), times=3) as raised,
    ):
        for _ in range(40):
            _right(compiled, model, 20)
    assert raised == [1], "it is not tried at every call"
    assert reasons == ["out of memory: CUDA out of memory"]
    _right(compiled, model, 3)
    assert {each.made.caps["rows"] for each in _runner(compiled).buckets} == {3}
    for _ in range(1200):
        _call(compiled, torch.zeros(20, 6))
    assert {each.made.caps["rows"] for each in _runner(compiled).buckets} == {3, 24}, (
        "there is memory again"
    )


def test_out_of_memory_for_the_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model()
    compiled = _padded(model)
    _right(compiled, model, 3)

    def no_memory(*args: Any, **kwargs: Any) -> None:
        raise torch.OutOfMemoryError("no room for buffers")

    with monkeypatch.context() as patch, _heard() as reasons:
        patch.setattr(Bucket, "__init__", no_memory)
        _right(compiled, model, 20)
    assert reasons == ["out of memory: no room for buffers"]
    assert len(compiled._graphs) == 1


def test_a_program_that_cannot_be_captured_runs_op_by_op() -> None:
    model = _model()
    compiled = _padded(model)
    with _heard() as reasons, _failing(CaptureFailed("operation not permitted")):
        for rows in (3, 4, 20):
            _right(compiled, model, rows)
    assert reasons == ["capture failed: operation not permitted"]
    assert len(compiled._graphs) == 0


def test_an_exception_of_another_kind_leaves_all_as_it_was() -> None:
    model = _model()
    compiled = _padded(model)
    with _failing(KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        _call(compiled, torch.zeros(3, 6))
    _right(compiled, model, 3)
    (bucket,) = _runner(compiled).buckets
    assert bucket.captures == 1


def test_a_capture_for_new_parameters_that_fails_is_not_taken_for_one() -> None:
    model = _model()
    compiled = _padded(model)
    _right(compiled, model, 3)
    with torch.no_grad():
        linear: Any = model[0]
        linear.weight.data = torch.randn_like(linear.weight)
    with _failing(KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        _call(compiled, torch.zeros(3, 6))
    _right(compiled, model, 3)
    (bucket,) = _runner(compiled).buckets
    assert bucket.captures == 2, "once for the parameters of before, once for those of now"


def test_parameters_that_are_replaced_or_cast() -> None:
    model = _model()
    compiled = _padded(model)
    _right(compiled, model, 3)
    linear: Any = model[0]
    linear.weight = nn.Parameter(torch.randn_like(linear.weight))
    _right(compiled, model, 4)
    linear.weight.data = torch.randn_like(linear.weight)
    _right(compiled, model, 3)
    model.to(torch.bfloat16)
    _right(compiled, model, 3, torch.bfloat16)
    model.to(torch.float64)
    _right(compiled, model, 5, torch.float64)
    model.float()
    _right(compiled, model, 5)
    with torch.no_grad():
        linear.weight.zero_()
    _right(compiled, model, 5)


def test_a_size_beyond_every_bucket() -> None:
    model = _model()
    compiled = _padded(model, max_cuda_graphs=1)
    for rows in (3, 500, 3, 2, 100_000):
        _right(compiled, model, rows)
    assert len(compiled._graphs) == 1


@pytest.mark.parametrize("limit", [1, 3, 64])
def test_threads_on_one_entry(limit: int) -> None:
    model = _model()
    compiled = _padded(model, max_cuda_graphs=limit)
    _right(compiled, model, 3)
    inputs = [torch.randn(1 + n * 7 % 60, 6) for n in range(120)]

    with ThreadPoolExecutor(4) as pool:
        for x, mine in zip(inputs, pool.map(partial(_call, compiled), inputs), strict=True):
            with torch.no_grad():
                assert_same(mine, model(x), f"{x.shape}", tolerance=1e-4)
    assert len(compiled._graphs) <= limit


def test_what_was_written_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the results of a program that has written cannot be answered, eager may not run it once
    more.
    """
    module = nn.Module()
    module.count = torch.tensor(0)

    def program(x: torch.Tensor) -> torch.Tensor:
        module.count.add_(1)
        return x * 2

    compiled = symshape.compile(program, dynamic=True, runner="padded")
    compiled(torch.ones(3))
    runner = _runner(compiled)

    def no_answer(tensors: Any, leaves: Any) -> Any:
        raise torch.OutOfMemoryError("no room for results")

    place = Bucket.place

    def placed(self: Bucket, *args: Any) -> Any:
        found = place(self, *args)
        object.__setattr__(found, "answer", no_answer)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "place", placed)
        with pytest.raises(torch.OutOfMemoryError):
            compiled(torch.ones(4))
    assert int(module.count) == 2
    assert runner.run([torch.ones(3)], (3,))[0].tolist() == [2, 2, 2]
    assert int(module.count) == 3


def _tensors() -> int:
    gc.collect()
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())


def test_mixed_faults_leak_nothing() -> None:
    rng = random.Random(5)
    model = _model()
    compiled = _padded(model, max_cuda_graphs=3, graph_memory="200 kB", max_entries=4)
    linear: Any = model[0]

    def replace() -> None:
        linear.weight = nn.Parameter(torch.randn_like(linear.weight))

    def move() -> None:
        linear.weight.data = torch.randn_like(linear.weight)

    def cast() -> None:
        model.to(torch.float64)
        _right(compiled, model, rng.randint(1, 60), torch.float64)
        model.float()

    def interrupt() -> None:
        with _failing(KeyboardInterrupt()):
            try:
                _right(compiled, model, rng.randint(1, 60))
            except KeyboardInterrupt:
                return

    def error(made: Callable[[], BaseException], when: str) -> Callable[[], None]:
        def fault() -> None:
            with _failing(made(), when):
                _right(compiled, model, rng.randint(1, 60))

        return fault

    def wrong() -> None:
        with pytest.raises((RuntimeError, symshape.SymShapeError)):
            compiled(torch.randn(4, 5))

    faults = [
        *(replace, move, cast, interrupt, wrong, compiled.reset),
        lambda: _right(compiled, model, rng.randint(1000, 50_000)),
        error(lambda: torch.OutOfMemoryError("out of memory"), "capture"),
        error(lambda: torch.OutOfMemoryError("out of memory"), "replay"),
        error(lambda: CaptureFailed("not permitted"), "capture"),
        error(lambda: RuntimeError("a kernel failed"), "replay"),
        lambda: (
            compiled.warm_up([rng.randint(1, 90)], progress=False) if compiled.entries else None
        ),
    ]

    def some(number: int) -> None:
        for _ in range(number):
            rng.choice(faults)()
            for _ in range(3):
                _right(compiled, model, rng.randint(1, 60))
            assert len(compiled._graphs) <= 3
            assert compiled._graphs.bytes() <= 200_000
            kept = [
                b
                for e in compiled.entries
                if isinstance(e.runner, PaddedRunner)
                for b in e.runner.buckets
            ]
            assert len(kept) == len(compiled._graphs), (
                "the store keeps nothing for entries that have left"
            )

    some(MIXED // 2)
    compiled.reset()
    before = _tensors()
    some(MIXED // 2)
    compiled.reset()
    assert _tensors() <= before * 1.05 + 5
    assert len(compiled._graphs) == compiled._graphs.bytes() == 0


def test_an_entry_that_dies_while_it_makes_a_bucket_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The objects that an entry was traced for may die at any allocation, and their entry then lets
    go.
    """
    model = _model()
    compiled = _padded(model)
    _right(compiled, model, 3)
    runner, place = _runner(compiled), Bucket.place

    def placed(self: Bucket, *args: Any) -> Any:
        runner.release()
        return place(self, *args)

    monkeypatch.setattr(Bucket, "place", placed)
    _right(compiled, model, 20)
    assert len(compiled._graphs) == 0
    assert runner.served() == {}
