"""Gradients through graphs, and what of autograd a graph would lose."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import symshape
from symshape import UnsupportedError
from tests.symshape.eager import agree, bits

R = torch.randn


def test_training_an_mlp() -> None:
    torch.manual_seed(0)
    ours = nn.Sequential(
        nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.2), nn.LayerNorm(16), nn.Linear(16, 1)
    )
    theirs = copy.deepcopy(ours)
    optimisers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in (ours, theirs)]
    traced = symshape.trace(ours, R(4, 5))
    for step, n in enumerate((4, 9, 1, 6, 2)):
        x, y = R(n, 5), R(n, 1)
        for served, optimiser in zip((traced, theirs), optimisers, strict=True):
            torch.manual_seed(step)
            optimiser.zero_grad()
            F.mse_loss(served(x), y).backward()
            optimiser.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.pow(2).sum(),
        lambda x: (x.softmax(-1) @ x.t()).logsumexp(0).sum(),
        lambda x: (x[:, : x.size(1) // 2] * 3).sum() + x.max(),
        lambda x: torch.cat([x, x.detach()]).cumsum(0).mean(),
        lambda x: F.layer_norm(x, x.shape[-1:]).abs().sum(),
        lambda x: x.reshape(-1).sort()[0][: x.size(0)].sum(),
    ],
)
def test_gradients_of_arguments(fn: Any) -> None:
    def gradient(served: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        served(x).backward()
        assert x.grad is not None
        return x.grad

    traced = symshape.trace(fn, R(3, 4).requires_grad_())
    for a, b in ((3, 4), (5, 2), (2, 6)):
        x = R(a, b)
        assert bits(gradient(traced, x)) == bits(gradient(fn, x))


def test_gradient_modes_inside() -> None:
    weight = nn.Parameter(R(3))

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            a = x * weight
            with torch.enable_grad():
                b = x * weight
        c = a + b
        return a, b, c, (x * weight).detach()

    traced, seen = agree(fn, (R(2, 3),), (R(5, 3),))
    assert seen == ["equal", "equal"]
    assert [each.requires_grad for each in traced(R(2, 3))] == [False, True, True, False]
    assert torch.is_grad_enabled()
    with torch.no_grad():
        assert not traced.check(R(2, 3))
        assert "no_grad" in traced.explain(R(2, 3))[0]


def test_gradients_computed_inside() -> None:
    weight = nn.Parameter(R(3))

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad((x * weight).pow(2).sum(), weight)[0]

    _, seen = agree(fn, (R(2, 3),), (R(5, 3),))
    assert seen == ["equal", "equal"]


def test_backward_inside_leaves_nothing_where_nothing_may_be_written() -> None:
    weight = nn.Parameter(R(3))

    def fn(x: torch.Tensor) -> torch.Tensor:
        loss = (x * weight).sum()
        loss.backward()
        return loss

    with pytest.raises(UnsupportedError, match=r"stores a tensor or a size in weight\.grad"):
        symshape.trace(fn, R(2, 3))
    assert weight.grad is None


def test_the_history_of_a_stand_in_is_no_custom_gradient() -> None:
    x = R(3).requires_grad_() * 2  # no leaf: its stand-in is made by an autograd.Function of ours
    traced = symshape.trace(lambda x: x * 3, x)
    assert [str(node.op) for node in traced.graph.nodes] == ["aten.mul.Tensor"]
    assert traced(x).requires_grad


def test_how_often_a_tensor_around_was_written_to_is_not_guarded() -> None:
    weight = torch.ones(3)
    with pytest.raises(UnsupportedError, match=r"reads Tensor\._version"):
        symshape.trace(lambda x: x * weight._version, torch.ones(3))
