"""Padded programs on a device: one CUDA graph for each bucket, eager's values at every size in
it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import Options, events
from symshape.runtime.runners.padded.runner import PaddedRunner
from tests.meta_fns.padding.poison import assert_same, poison
from tests.symshape.runtime.runners.padded.test_runner import SIZES, WHOLE, Call

DTYPES = {torch.float32: 1e-3, torch.bfloat16: 5e-2}


def _moved(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to("cuda", dtype if tensor.is_floating_point() else tensor.dtype)


FLOAT_ONLY = ("decoder",)  # it mixes dtypes in eager, too
# on CUDA, sdpa pads the mask's last dimension by a margin, which is refused
MANY_BUCKETS = ("encoder with a mask",)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("name", "make", "call"), [row[:3] for row in WHOLE], ids=[row[0] for row in WHOLE]
)
def test_whole_models(
    name: str, make: Callable[[], nn.Module], call: Call, dtype: torch.dtype
) -> None:
    if name in FLOAT_ONLY and dtype is not torch.float32:
        pytest.skip("the model refuses this dtype")
    torch.manual_seed(0)
    model = make().eval().to("cuda", dtype)
    compiled = symshape.compile(model, dynamic=True, runner="padded")
    fallbacks: list[events.Event] = []
    unsubscribe = events.subscribe(
        lambda e: fallbacks.append(e) if isinstance(e, events.RunnerFallback) else None
    )
    try:
        with torch.no_grad():
            for number, sizes in enumerate(SIZES):
                for entry in compiled.entries:
                    assert isinstance(entry.runner, PaddedRunner)
                    for bucket in entry.runner.buckets:
                        for buffer in bucket.buffers:
                            poison(buffer, number)
                arguments = [_moved(each, dtype) for each in call(*sizes)]
                mine, theirs = (
                    torch.utils._pytree.tree_leaves(each(*arguments)) for each in (compiled, model)
                )
                for place, (a, b) in enumerate(zip(mine, theirs, strict=True)):
                    assert_same(a, b, f"call {number}, result {place}", tolerance=DTYPES[dtype])
    finally:
        unsubscribe()
    assert not fallbacks
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    assert 1 <= len(entry.runner.buckets) <= (len(SIZES) if name in MANY_BUCKETS else 5)
    assert entry.runner.padding().padded


@pytest.mark.parametrize(
    ("name", "make", "call"), [row[:3] for row in WHOLE][:2], ids=[row[0] for row in WHOLE][:2]
)
def test_kernels_compiled_beside_calls(
    name: str, make: Callable[[], nn.Module], call: Call
) -> None:
    torch.manual_seed(0)
    model = make().eval().to("cuda")
    compiled = symshape.compile(
        model, dynamic=True, runner="padded", options=Options(kernels="background")
    )
    beside: list[events.Event] = []
    unsubscribe = events.subscribe(
        lambda e: beside.append(e) if isinstance(e, events.CompiledBeside) else None
    )
    try:
        with torch.no_grad():
            for number, sizes in enumerate((*SIZES, *SIZES)):
                if number == len(SIZES):
                    assert compiled.settle(300)
                for entry in compiled.entries:
                    assert isinstance(entry.runner, PaddedRunner)
                    for bucket in entry.runner.buckets:
                        for buffer in bucket.buffers:
                            poison(buffer, number)
                arguments = [_moved(each, torch.float32) for each in call(*sizes)]
                mine, theirs = (
                    torch.utils._pytree.tree_leaves(each(*arguments)) for each in (compiled, model)
                )
                for place, (a, b) in enumerate(zip(mine, theirs, strict=True)):
                    assert_same(a, b, f"{name}, call {number}, result {place}", tolerance=1e-3)
    finally:
        unsubscribe()
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    if name == "encoder" and not beside:  # a mask with a margin, in memory-efficient attention
        assert "no form in common" in entry.runner.describe()
        return
    assert beside
    assert any(len(bucket.variants) == 2 for bucket in entry.runner.buckets)


def test_sizes_never_seen_are_replayed() -> None:
    compiled = symshape.compile(lambda x: x.softmax(0).cumsum(0), dynamic=True, runner="padded")
    for n in range(33, 49):
        x = torch.randn(n, 7, device="cuda")
        assert_same(compiled(x), x.softmax(0).cumsum(0), f"{n}", tolerance=1e-4)
    (entry,) = compiled.entries
    assert len(entry.runner.buckets) == 1


def test_memory_is_flat_after_many_sizes() -> None:
    compiled = symshape.compile(
        lambda x: (x * 2).sum(1), dynamic=True, runner="padded", options=Options(max_cuda_graphs=8)
    )

    def run(times: int) -> int:
        for n in torch.randint(1, 5000, (times,)).tolist():
            compiled(torch.ones(n, 16, device="cuda"))
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    first = run(300)
    assert run(700) <= first * 1.05 + 2**20


def test_another_stream_gets_its_own_graphs() -> None:
    compiled = symshape.compile(lambda x: x.sum(0), dynamic=True, runner="padded")
    x = torch.randn(40, 5, device="cuda")
    expected = x.sum(0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        mine = compiled(x)
    torch.cuda.current_stream().wait_stream(side)
    assert_same(mine, expected, "side", tolerance=1e-4)
    assert_same(compiled(x), expected, "main", tolerance=1e-4)
    (entry,) = compiled.entries
    assert len(entry.runner.buckets) == 2


# --- kept, warmed, lent, written, drawn -----------------------------------------------------------


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).eval().cuda()


def _right(compiled: Any, model: nn.Module, rows: int) -> None:
    with torch.no_grad():
        x = torch.randn(rows, 64, device="cuda")
        assert_same(compiled(x), model(x), f"{rows} rows", tolerance=1e-3)


def _captures() -> tuple[list[events.Event], Callable[[], object]]:
    found: list[events.Event] = []
    return found, events.subscribe(
        lambda e: found.append(e) if isinstance(e, events.GraphCaptured) else None
    )


def test_a_plan_is_captured_before_calls_need_it() -> None:
    model = _model()
    compiled = symshape.compile(model, dynamic={"input": {0: "rows"}}, runner="padded")
    for rows in (3, 40, 41, 200, 3):
        _right(compiled, model, rows)
    warm = compiled.warm_up(symshape.plan(compiled, max_graphs=3), progress=False)
    assert (warm.graphs, warm.failures) == (3, ())
    assert all(each.milliseconds > 0 and each.bytes > 0 for _, each in warm.made)
    captured, unsubscribe = _captures()
    try:
        for rows in (3, 40, 41, 200, 2, 150):
            _right(compiled, model, rows)
    finally:
        unsubscribe()
    assert captured == []
    assert "captured 1 times" in compiled.report()


def test_a_budget_in_bytes_bounds_what_is_allocated() -> None:
    compiled = symshape.compile(
        lambda x: (x * 2).exp().sum(1),
        dynamic={"x": {0: "rows"}},
        runner="padded",
        options=Options(graph_memory="8 MB"),
    )
    for rows in torch.randint(1, 20_000, (200,)).tolist():
        x = torch.randn(rows, 64, device="cuda")
        assert_same(compiled(x), (x * 2).exp().sum(1), f"{rows}", tolerance=1e-2)
        assert compiled._graphs.bytes() <= 8_000_000


def test_lent_results_are_right_until_the_next_call() -> None:
    model = _model()
    for check in (False, True):
        options = Options(outputs="borrow", check_borrowed=check)
        compiled = symshape.compile(
            model, dynamic={"input": {0: "rows"}}, runner="padded", options=options
        )
        for rows in (3, 7, 8, 30, 5):
            _right(compiled, model, rows)
        with torch.no_grad():
            first = compiled(torch.randn(7, 64, device="cuda"))
            compiled(torch.randn(6, 64, device="cuda"))
        assert not check or first.isnan().all()


class _Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(64, 4))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: torch.Tensor, own: torch.Tensor, place: torch.Tensor) -> Any:
        self.cache[: x.shape[0]] = x
        self.calls += 1
        own.index_copy_(0, place, x)
        return self.cache.sum(0), self.calls * 2, own.sum(0)


def test_buffers_and_arguments_are_written_once_a_call() -> None:
    torch.manual_seed(0)
    module, twin = _Kept().cuda(), _Kept().cuda()
    compiled = symshape.compile(
        module,
        dynamic={"x": {0: "rows"}, "own": None, "place": {0: "rows"}},
        runner="padded",
        fullgraph=True,
    )
    with torch.no_grad():
        for rows in (5, 6, 3, 20, 5, 2, 17):
            x, own = torch.randn(rows, 4, device="cuda"), torch.randn(32, 4, device="cuda")
            place = torch.randperm(32, device="cuda")[:rows]
            other = own.clone()
            mine, theirs = compiled(x, own, place), twin(x, other, place)
            for a, b in zip(
                (*mine, own, *module.buffers()), (*theirs, other, *twin.buffers()), strict=True
            ):
                assert_same(a, b, f"{rows}", tolerance=1e-4)
    (entry,) = compiled.entries
    assert entry.runner.buckets


def test_dropout_follows_the_seed_and_differs_between_replays() -> None:
    compiled = symshape.compile(
        lambda x: nn.functional.dropout(x, 0.25),
        dynamic=True,
        runner="padded",
        options=Options(randomness="any"),
        fullgraph=True,
    )
    x = torch.ones(10_000, device="cuda")
    compiled(x)
    torch.manual_seed(1)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(1)
    assert torch.equal(compiled(x), first)
    assert not torch.equal(first, second)
    assert abs(float((first == 0).float().mean()) - 0.25) < 0.03
    (entry,) = compiled.entries
    assert len(entry.runner.buckets) == 1


def test_parameters_that_moved_are_captured_again() -> None:
    model = _model()
    compiled = symshape.compile(model, dynamic={"input": {0: "rows"}}, runner="padded")
    _right(compiled, model, 7)
    linear: Any = model[0]
    linear.weight.data = torch.randn_like(linear.weight)
    _right(compiled, model, 7)
    linear.weight = nn.Parameter(torch.randn_like(linear.weight))
    _right(compiled, model, 7)


def test_threads_on_one_entry() -> None:
    model = _model()
    compiled = symshape.compile(model, dynamic={"input": {0: "rows"}}, runner="padded")
    _right(compiled, model, 3)
    inputs = [torch.randn(1 + n * 7 % 60, 64, device="cuda") for n in range(60)]
    torch.cuda.synchronize()

    def call(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            made: torch.Tensor = compiled(x)
            return made

    with ThreadPoolExecutor(4) as pool:
        for x, mine in zip(inputs, pool.map(call, inputs), strict=True):
            with torch.no_grad():
                assert_same(mine, model(x), f"{x.shape}", tolerance=1e-3)


def test_faults_leak_nothing() -> None:
    model = _model()
    linear: Any = model[0]
    compiled = symshape.compile(
        model,
        dynamic={"input": {0: "rows"}},
        runner="padded",
        options=Options(max_cuda_graphs=3, free_traces=None),  # each new parameter is a trace
    )

    def some(number: int) -> int:
        for n in range(number):
            if n % 5 == 0:
                linear.weight = nn.Parameter(torch.randn_like(linear.weight))
            if n % 7 == 0:
                linear.weight.data = torch.randn_like(linear.weight)
            if n % 11 == 0:
                with pytest.raises((RuntimeError, symshape.SymShapeError)):
                    compiled(torch.randn(4, 63, device="cuda"))
            _right(compiled, model, 1 + n * 13 % 90)
        compiled.reset()
        gc.collect()
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    before = some(60)
    assert some(200) <= before * 1.05 + 2**20


def test_graphs_of_one_stream_use_the_memory_of_the_largest() -> None:
    """Buffers, what comes and goes, and results: what one replay leaves is copied out before the
    next.
    """
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 2048)).cuda()
    caps = (4096, 3072, 2048, 1536, 1024, 768, 512, 384)
    with torch.no_grad():
        compiled = symshape.compile(lambda x: (net(x), x.cumsum(0)), dynamic=True, runner="padded")
        compiled(torch.randn(4096, 512, device="cuda"))
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        first = torch.cuda.memory_reserved()
        warm = compiled.warm_up([(each, 512) for each in caps], progress=False)
        assert all(each.ready for _, each in warm.made), str(warm)
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        largest = sum(
            each.nbytes
            for each in (torch.empty(4096, 512), torch.empty(4096, 2048), torch.empty(4096, 512))
        )
        assert torch.cuda.memory_reserved() - first < 0.25 * largest
        results = []
        for size in (4000, 300, 2000, 700, 4096, 1000, 350, 1500):
            x = torch.randn(size, 512, device="cuda")
            results.append((compiled(x), (net(x), x.cumsum(0))))
        for mine, theirs in results:  # only now: each call's results are its own
            for a, b in zip(mine, theirs, strict=True):
                assert_same(a, b, "a result", tolerance=1e-2)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest", "nearest-exact"])
def test_images_that_keep_their_sizes_are_copied(mode: str) -> None:
    """A factor of 1.1 keeps sizes below 10; CUDA then copies, and the CPU computes.

    Nearest kernels copy each dimension that keeps its size, the others only if both do.
    """

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, scale_factor=1.1, mode=mode)

    compiled = symshape.compile(fn, dynamic=True, runner="padded")
    with torch.no_grad():
        for number, sizes in enumerate(((5, 5), (12, 13), (7, 9), (4, 12), (3, 6))):
            x = torch.randn(2, 3, *sizes, device="cuda")
            if max(sizes) < 10:
                x[0, 0, 1, 1] = float("inf")
            for entry in compiled.entries:
                if isinstance(entry.runner, PaddedRunner):
                    for bucket in entry.runner.buckets:
                        for buffer in bucket.buffers:
                            poison(buffer, number)
            assert_same(compiled(x), fn(x), f"{sizes}", tolerance=1e-3)
    assert isinstance(compiled.entries[-1].runner, PaddedRunner)
