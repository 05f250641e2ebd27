"""Gradients of gradients through graphs: what autograd saved and hands out again keeps its
history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import symshape
from symshape import UnsupportedError

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "elu": nn.ELU,
    "softmax": lambda: nn.Softmax(-1),
    "layer norm": lambda: nn.LayerNorm(16),
    "gelu": nn.GELU,
}


def _net(activation: str = "tanh") -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), ACTIVATIONS[activation](), nn.Linear(16, 1))


def _penalty(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    (found,) = torch.autograd.grad(net(x).exp().sum(), x, create_graph=True)
    return ((found.norm(2, dim=1) - 1) ** 2).mean()


def _thrice(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    (found,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    (again,) = torch.autograd.grad(found.square().sum(), x, create_graph=True)
    return again.square().sum()


def _of_parameters(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    found = torch.autograd.grad(net(x).sum(), list(net.parameters()), create_graph=True)
    return torch.stack([each.square().sum() for each in found]).sum()


def _in_place(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    (found,) = torch.autograd.grad((net(x) * 2).sigmoid_().sum(), x, create_graph=True)
    return found.square().sum()


def _kept_on_the_host(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.autograd.graph.save_on_cpu():
        y = net(x).exp()
    (found,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return found.square().sum()


def _into_a_detached_one(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = net(x).detach()
    y += x.tanh().sum(1, keepdim=True)  # what was detached has a history of its own now
    (found,) = torch.autograd.grad(y.tanh().sum(), x, create_graph=True)
    return found.square().sum()


def _gradients(
    fn: Callable[[torch.Tensor], torch.Tensor], net: nn.Module, x: torch.Tensor
) -> list[Any]:
    net.zero_grad()
    x = x.clone().requires_grad_()
    found = fn(x)
    found.backward()
    return [found.detach(), x.grad, *(each.grad for each in net.parameters())]


def _agree(program: Callable[..., torch.Tensor], net: nn.Module) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return program(net, x)

    compiled = symshape.compile(fn, fullgraph=True)
    for rows in (3, 4, 2, 6):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(_gradients(compiled, net, x), _gradients(fn, net, x))
    assert compiled.stats().traces == 2


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_penalty_on_gradients(activation: str) -> None:
    _agree(_penalty, _net(activation))


@pytest.mark.parametrize(
    "program", [_thrice, _of_parameters, _in_place, _kept_on_the_host, _into_a_detached_one]
)
def test_other_ways(program: Callable[..., torch.Tensor]) -> None:
    _agree(program, _net())


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        return gradient * y


def test_a_saved_result_that_a_custom_gradient_answers() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        (found,) = torch.autograd.grad(Exp.apply(x).sum(), x, create_graph=True)
        return torch.autograd.grad(found.square().sum(), x)[0]

    compiled = symshape.compile(fn, fullgraph=True)
    for rows in (3, 4, 5):
        x = torch.randn(rows, 8, requires_grad=True)
        assert torch.equal(compiled(x), fn(x))


def test_what_is_computed_again_is_refused() -> None:
    net = _net()

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = checkpoint(net, x, use_reentrant=False, preserve_rng_state=False)
        return torch.autograd.grad(y.sum(), x, create_graph=True)[0].square().sum()

    with pytest.raises(UnsupportedError, match="gradients of gradients"):
        symshape.trace(fn, torch.randn(3, 8, requires_grad=True))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_in_a_step_of_training(reentrant: bool) -> None:
    """What backward runs again, it runs on leaves of its own."""

    def made() -> Any:
        net = _net()
        first = nn.Linear(8, 8)
        optimiser = torch.optim.SGD([*first.parameters(), *net.parameters()], 0.1)

        def step(x: torch.Tensor) -> list[torch.Tensor]:
            y = checkpoint(net, first(x), use_reentrant=reentrant, preserve_rng_state=False)
            optimiser.zero_grad()
            y.square().mean().backward()
            optimiser.step()
            return [each.detach().clone() for each in (*first.parameters(), *net.parameters())]

        return step

    torch.manual_seed(0)
    compiled: Any = symshape.compile(made(), fullgraph=True)
    torch.manual_seed(0)
    step = made()
    for rows in (3, 4, 5):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), step(x))
    assert compiled.stats().traces == 2
