"""Products at sizes that tensor cores like: the same values, for few rows left as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import Options
from symshape.graph.steps import Node
from symshape.runtime.padding import alignment
from symshape.runtime.padding.alignment import align, worth_aligning
from symshape.runtime.runners.padded.runner import PaddedRunner
from tests.meta_fns.padding.poison import poison

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _also_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the kernels of this device were those of CUDA, for fewer rows."""
    monkeypatch.setattr(alignment, "_DEVICES", frozenset({"cpu", "cuda"}))
    monkeypatch.setattr(alignment, "_ROWS", 32)
    monkeypatch.setattr(alignment, "_LEAST", 8)


class Block(nn.Module):
    """Products of each kind: with a bias and without, weights turned and not, used twice."""

    def __init__(self, width: int = 16, hidden: int = 21, words: int = 43) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width)
        self.plain = nn.Parameter(torch.randn(width, hidden) / 4)
        self.bias = nn.Parameter(torch.randn(hidden))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        y = torch.nn.functional.silu(self.up(x))
        flat = x.view(-1, x.shape[-1])
        y = y + torch.addmm(self.bias, flat, self.plain).view(y.shape) + self.up(x * 2)
        x = x + self.down(y)
        return nn.functional.linear(x, self.words.weight)


def _ops(runner: PaddedRunner) -> list[list[Any]]:
    graphs = [bucket._padded.graph for bucket in runner.buckets]
    return [[step.op for step in graph.steps if isinstance(step, Node)] for graph in graphs]


def _runner(compiled: Any) -> PaddedRunner:
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    return entry.runner


def _check(compiled: Any, model: nn.Module, batch: int, length: int) -> None:
    for entry in compiled.entries:
        for bucket in entry.runner.buckets:
            for buffer in bucket.buffers:
                poison(buffer, batch + length)
    tokens = torch.randint(0, 43, (batch, length))
    with torch.no_grad():
        found, expected = compiled(tokens), model(tokens)
        exact = model.double()(tokens)
        model.bfloat16()
    assert found.shape == expected.shape
    assert found.is_contiguous()
    off, eager_off = ((each.double() - exact).norm() / exact.norm() for each in (found, expected))
    assert off <= 2 * eager_off + 1e-3, (batch, length, off, eager_off)


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["eager", "inductor"])
def test_values_are_eagers_in_every_bucket(kernels: Any) -> None:
    torch.manual_seed(0)
    model = Block().bfloat16().eval()
    compiled = symshape.compile(
        model, dynamic=True, runner="padded", options=Options(kernels=kernels)
    )
    for batch, length in ((3, 30), (2, 3), (3, 29), (5, 11), (2, 2), (4, 25), (7, 9), (3, 31)):
        _check(compiled, model, batch, length)
    ops = _ops(_runner(compiled))
    many = [found for found in ops if aten.constant_pad_nd.default in found]
    assert 0 < len(many) < len(ops)  # those of few rows are as they were
    for found in many:
        assert found.count(aten.mm.default) + found.count(aten.addmm.default) == 5
        # weights (one is read twice), a bias, rows
        assert found.count(aten.constant_pad_nd.default) == 4 + 1 + 1
    if kernels == "inductor":
        assert len(_runner(compiled)._kernels) == 2  # type: ignore[arg-type]


def test_weights_may_change_between_calls() -> None:
    model = Block().bfloat16().eval()
    compiled = symshape.compile(model, dynamic=True, runner="padded")
    _check(compiled, model, 4, 20)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data.copy_(torch.randn_like(parameter) / 4)
    _check(compiled, model, 4, 19)
    assert len(_runner(compiled).buckets) == 1


def test_float32_and_sizes_that_fit_stay_as_they_are() -> None:
    for model in (Block().eval(), Block(16, 24, 48).bfloat16().eval()):
        compiled = symshape.compile(model, dynamic=True, runner="padded")
        with torch.no_grad():
            compiled(torch.randint(0, 43, (4, 20)))
        (found,) = _ops(_runner(compiled))
        assert aten.constant_pad_nd.default not in found


def test_a_factor_that_is_no_weight_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(x: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, (x.t() * 2)[:, :21])

    compiled = symshape.compile(rows, dynamic=True, runner="padded")
    with torch.no_grad():
        compiled(torch.randn(50, 13, dtype=torch.bfloat16))
    (entry,) = compiled.entries
    for bucket in getattr(entry.runner, "buckets", ()):
        assert not worth_aligning(bucket._padded)


def test_nothing_chosen_changes_nothing() -> None:
    model = Block().bfloat16().eval()
    compiled = symshape.compile(model, dynamic=True, runner="padded")
    with torch.no_grad():
        compiled(torch.randint(0, 43, (2, 3)))
    (bucket,) = _runner(compiled).buckets
    assert align(bucket._padded, worth_aligning(bucket._padded)) is bucket._padded
