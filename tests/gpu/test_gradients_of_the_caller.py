"""Compiled modules whose caller runs the backward: forward and backward as CUDA graphs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import symshape
from symshape.runtime.runners.gradients.runner import GradientsRunner

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICE = torch.device("cuda")


class Layer(nn.Module):
    """A layer of a transformer with causal attention."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        packed = self.attention(self.before(hidden)).unflatten(-1, (3, self.heads, -1))
        query, key, value = (each.transpose(1, 2) for each in packed.unbind(2))
        mixed = F.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout, is_causal=True
        )
        hidden = hidden + self.out(mixed.transpose(1, 2).flatten(2))
        found: torch.Tensor = hidden + self.down(F.gelu(self.up(self.after(hidden))))
        return found


class Model(nn.Module):
    """An embedding, two layers and scores."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.words = nn.Embedding(101, 64)
        self.layers = nn.Sequential(Layer(64, 4, dropout), Layer(64, 4, dropout))
        self.head = nn.Linear(64, 101)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.layers(self.words(tokens)))
        return scores


SIZES = [(3, 17), (4, 30), (6, 45), (2, 64), (1, 33), (8, 9), (5, 64), (3, 17), (7, 21), (1, 64)]


def _twins() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    eager = Model().to(DEVICE)
    return eager, symshape.compile(copy.deepcopy(eager), runner="padded")


def _tokens(sizes: tuple[int, int]) -> torch.Tensor:
    return torch.randint(0, 101, sizes, device=DEVICE)


def _check(mine: Any, eager: nn.Module, share: float) -> None:
    """Compare each gradient, within a share of its largest element."""
    for one, other in zip(mine.parameters(), eager.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        most = float(other.grad.abs().max())
        assert float((one.grad - other.grad).abs().max()) <= share * most + 1e-7


def _graphs(mine: Any) -> int:
    entries = symshape.compiled_of(mine).entries
    (last,) = [e.runner for e in entries[-1:] if isinstance(e.runner, GradientsRunner)]
    assert [runner.describe().split(",")[0] for _, runner in last.halves] == ["padded"] * 2
    return int(symshape.compiled_of(mine).stats().cuda_graphs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gradients_are_eagers(dtype: torch.dtype) -> None:
    eager, mine = _twins()
    for sizes in SIZES:
        tokens = _tokens(sizes)
        for each in (eager, mine):
            each.zero_grad()
            with torch.autocast("cuda", dtype, enabled=dtype is not torch.float32):
                scores = each(tokens)
                loss = F.cross_entropy(scores.flatten(0, 1), tokens.flatten())
            loss.backward()
        _check(mine, eager, 1e-4 if dtype is torch.float32 else 0.06)
    assert _graphs(mine) >= 4


def test_a_model_in_its_own_dtype() -> None:
    eager, mine = _twins()
    eager.bfloat16(), mine.bfloat16()
    for sizes in SIZES:
        tokens = _tokens(sizes)
        for each in (eager, mine):
            each.zero_grad()
            each(tokens).float().square().mean().backward()
        _check(mine, eager, 0.06)
    assert _graphs(mine) >= 4


def test_several_calls_before_their_backward() -> None:
    eager, mine = _twins()
    for _ in range(3):
        given = [_tokens(sizes) for sizes in SIZES[:4]]
        for each in (eager, mine):
            each.zero_grad()
            losses = [each(tokens).square().mean() for tokens in given]
            for loss in (losses[2], losses[0], losses[3] + losses[1]):
                loss.backward()
        _check(mine, eager, 1e-4)
    _graphs(mine)


def test_on_another_stream() -> None:
    eager, mine = _twins()
    side = torch.cuda.Stream()
    for sizes in SIZES:
        tokens = _tokens(sizes)
        for each in (eager, mine):
            each.zero_grad()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                loss = each(tokens).square().mean()
            torch.cuda.current_stream().wait_stream(side)
            loss.backward()
        torch.cuda.synchronize()
        _check(mine, eager, 1e-4)
    _graphs(mine)


def test_training_by_default_options() -> None:
    """The ledger decides; nothing depends on when it does."""
    torch.manual_seed(0)
    eager = Model().to(DEVICE)
    mine = symshape.compile(copy.deepcopy(eager))
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.05) for each in (eager, mine)]
    for step in range(150):
        tokens = _tokens((1 + step % 5, 8 + step * 7 % 40))
        losses = []
        for each, optimizer in zip((eager, mine), optimizers, strict=True):
            optimizer.zero_grad()
            scores = each(tokens)
            loss = F.cross_entropy(scores.flatten(0, 1), tokens.flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(each.parameters(), 1.0)
            optimizer.step()
            losses.append(float(loss.detach()))
        assert losses[1] == pytest.approx(losses[0], rel=1e-2)
    assert symshape.compiled_of(mine).stats().cuda_graphs


def test_gradients_of_gradients() -> None:
    eager, mine = _twins()
    for sizes in SIZES[:5]:
        mine(_tokens(sizes)).sum().backward()
    tokens = _tokens((3, 12))
    weights = [each.head.weight for each in (eager, mine)]
    found = []
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        for each, weight in zip((eager, mine), weights, strict=True):
            (first,) = torch.autograd.grad(each(tokens).square().mean(), weight, create_graph=True)
            (second,) = torch.autograd.grad(first.square().sum(), weight)
            found.append(second)
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-5)
