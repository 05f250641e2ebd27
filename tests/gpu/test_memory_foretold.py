"""Workspaces of cuDNN, measured op by op before a capture, against the pool after it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import Options
from symshape.cost.workspaces.column_sums import Multiprocessors
from symshape.torch_internals import cuda


def _clean() -> None:
    for _ in range(2):
        gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def _convolutions() -> nn.Module:
    layers = [
        nn.Conv2d(3, 64, 3, 2, 1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3, 2, 1),
        nn.ReLU(),
    ]
    return nn.Sequential(
        *layers, nn.Conv2d(128, 128, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(256, 256, batch_first=True)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.cell(input)[0]
        return found


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutions": (_convolutions, (3, 112, 112)),
    "recurrent": (_Recurrent, (32, 256)),
}


@pytest.mark.parametrize("name", MODELS)
def test_pools_of_workspaces_are_foretold(name: str) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    module = make().cuda().eval().requires_grad_(False)
    options = Options(kernels="eager")
    compiled: Any = symshape.compile(
        module, runner="padded", dynamic={"input": {0: "n"}}, options=options
    )
    with torch.no_grad():
        compiled(torch.randn(3, *shape, device="cuda"))
    compiled.entries[0].runner.store.clear()
    sizes = [{"n": n} for n in (64, 40, 7)]
    _clean()
    before = torch.cuda.memory_reserved()
    found = compiled.graph_memory(sizes)
    assert found.unknown == ()
    _clean()
    assert torch.cuda.memory_reserved() - before <= 34 * 2**20, (
        "a measurement leaves cuBLAS' workspace at most"
    )
    assert not cuda.records_history()
    before = torch.cuda.memory_reserved()
    warm = compiled.warm_up(sizes, progress=False)
    assert warm.graphs == 3
    _clean()
    grown = torch.cuda.memory_reserved() - before
    # Buffers may fit into free memory of segments that are there: up to one segment is foretold,
    # but not taken.
    assert 0.97 * grown - 36 * 2**20 <= found.pool + found.buffers <= 1.03 * grown + 24 * 2**20


def test_fits_measures_convolutions() -> None:
    _clean()
    before = torch.cuda.memory_allocated()  # what other tests of the process have left
    module = _convolutions().cuda()
    x = torch.randn(4, 3, 112, 112, device="cuda")
    found = symshape.fits(
        module, x, memory="40 GB", train="sgd", loss=lambda y: y.square().mean(), batch=0
    )
    optimizer = torch.optim.SGD(module.parameters())

    def step(batch: int) -> None:
        module(torch.randn(batch, 3, 112, 112, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step(4)
    at = found.reserved(batch=64)
    assert found.unknown == ()
    _clean()
    torch.cuda.reset_peak_memory_stats()
    step(64)
    torch.cuda.synchronize()
    measured = torch.cuda.max_memory_allocated() - before
    assert 0.95 * measured - 68 * 2**20 <= at.allocated <= 1.05 * measured + 68 * 2**20


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_partial_sums_of_columns_are_foretold(dtype: torch.dtype) -> None:
    device = Multiprocessors.here()
    for rows, columns in (
        (16384, 2048),
        (6304, 512),
        (4000, 770),
        (9001, 33),
        (1024, 96),
        (300, 8),
    ):
        x = torch.ones(rows, columns, dtype=dtype, device="cuda")
        x.sum(0)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_stats()["requested_bytes.all.current"]
        made = x.sum(0)
        asked = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
        wanted = (made.nbytes, *device.partial_sums(rows, columns, max(dtype.itemsize, 4)))
        assert asked == sum(wanted), (rows, columns)
