"""Padded programs on a device: one CUDA graph for each bucket, eager's values at every size in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import symshape
from symshape import Options, events
from symshape.runtime.runners.padded import PaddedRunner
from tests.meta_fns.padding.poison import assert_same, poison
from tests.symshape.runtime.runners.test_padded import SIZES, WHOLE, Call

DTYPES = {torch.float32: 1e-3, torch.bfloat16: 5e-2}


def _moved(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to("cuda", dtype if tensor.is_floating_point() else tensor.dtype)


FLOAT_ONLY = ("decoder",)  # it mixes dtypes in eager, too
MANY_BUCKETS = ("encoder with a mask",)  # on CUDA, sdpa pads the mask's last dimension by a margin, which is refused


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "make", "call"), [row[:3] for row in WHOLE], ids=[row[0] for row in WHOLE])
def test_whole_models(name: str, make: Callable[[], nn.Module], call: Call, dtype: torch.dtype) -> None:
    if name in FLOAT_ONLY and dtype is not torch.float32:
        pytest.skip("the model refuses this dtype")
    torch.manual_seed(0)
    model = make().eval().to("cuda", dtype)
    compiled = symshape.compile(model, dynamic=True, runner="padded")
    fallbacks: list[events.Event] = []
    unsubscribe = events.subscribe(lambda e: fallbacks.append(e) if isinstance(e, events.RunnerFallback) else None)
    try:
        with torch.no_grad():
            for number, sizes in enumerate(SIZES):
                for entry in compiled.entries:
                    assert isinstance(entry.runner, PaddedRunner)
                    for bucket in entry.runner.buckets:
                        for buffer in bucket.buffers:
                            poison(buffer, number)
                arguments = [_moved(each, dtype) for each in call(*sizes)]
                mine, theirs = (torch.utils._pytree.tree_leaves(each(*arguments)) for each in (compiled, model))
                for place, (a, b) in enumerate(zip(mine, theirs, strict=True)):
                    assert_same(a, b, f"call {number}, result {place}", tolerance=DTYPES[dtype])
    finally:
        unsubscribe()
    assert not fallbacks
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    assert 1 <= len(entry.runner.buckets) <= (len(SIZES) if name in MANY_BUCKETS else 5)
    assert entry.runner.padding().padded


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
