"""A whole step of training in one compiled function: forward, loss, backward, clipping, AdamW; equal to eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.optim.adamw import adamw

import symshape

Tensors = list[torch.Tensor]


def loss_of(parameters: Tensors, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A layer, a norm, a layer, cross entropy."""
    first, bias, scale, shift, second, last = parameters
    hidden = functional.gelu(functional.linear(x, first, bias))
    hidden = functional.layer_norm(hidden, (8,), scale, shift)
    return functional.cross_entropy(functional.linear(hidden, second, last), y)


def clipped(gradients: Tensors) -> torch.Tensor:
    """Scales the gradients in place to a norm of at most 0.5; their norm."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, torch.clamp(0.5 / (norm + 1e-6), max=1.0))
    return norm


def step(
    parameters: Tensors,
    averages: Tensors,
    squares: Tensors,
    steps: Tensors,
    x: torch.Tensor,
    y: torch.Tensor,
    **how: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of training, in place."""
    loss = loss_of(parameters, x, y)
    gradients = list(torch.autograd.grad(loss, parameters))
    with torch.no_grad():
        norm = clipped(gradients)
        adamw(
            *(parameters, gradients, averages, squares, [], steps),
            **({"foreach": False, "fused": False} | how),
            amsgrad=False,
            maximize=False,
            capturable=False,
            beta1=0.9,
            beta2=0.99,
            lr=1e-2,
            weight_decay=0.01,
            eps=1e-8,
        )
    return loss.detach(), norm


def start() -> tuple[Tensors, Tensors, Tensors, Tensors]:
    """Parameters and the state of the optimiser."""
    torch.manual_seed(0)
    shapes = [(8, 4), (8,), (8,), (8,), (3, 8), (3,)]
    parameters = [torch.randn(shape).requires_grad_() for shape in shapes]
    zeros: Callable[[], Tensors] = lambda: [torch.zeros(shape) for shape in shapes]  # noqa: E731
    return parameters, zeros(), zeros(), [torch.tensor(0.0) for _ in shapes]


@pytest.mark.parametrize(
    "how",
    [{}, {"foreach": True}, {"fused": True}],
    ids=lambda how: "+".join(how) or "plain",
)
def test_fifty_steps_are_eagers(how: dict[str, bool]) -> None:
    ours, theirs = start(), start()
    compiled = symshape.compile(step, fullgraph=True)
    for number in range(50):
        batch = 2 + (number * 7) % 11
        x, y = torch.randn(batch, 4), torch.randint(0, 3, (batch,))
        torch.testing.assert_close(compiled(*ours, x, y, **how), step(*theirs, x, y, **how), rtol=1e-4, atol=1e-6)
    for mine, eager in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-3, atol=1e-5)
    assert compiled.stats().traces <= 3


@pytest.mark.parametrize("name", ["_foreach_addcdiv_", "_foreach_addcmul_"])
def test_numbers_of_a_tensor(name: str) -> None:
    op: Any = getattr(torch, name)

    def f(x: torch.Tensor, y: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        op([x, y], [x + 1, y + 1], [y + 2, x + 2], numbers)
        return x + y

    compiled = symshape.compile(f, fullgraph=True, dynamic=True)
    for n in (3, 5):
        args = [torch.rand(n), torch.rand(n), torch.tensor([2.0, 3.0])]
        copies = [each.clone() for each in args]
        torch.testing.assert_close(compiled(*args), f(*copies))
        torch.testing.assert_close(args, copies)
    assert compiled.stats().traces == 1
