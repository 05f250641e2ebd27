"""What optimizers keep and need, against their own steps on real tensors; the optimizer stays as it
was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim.optimizer import Optimizer

from symshape.cost.live_bytes import LiveBytes
from symshape.cost.optimizers import optimizer_memory, optimizer_of
from symshape.errors import InputError

SHAPES = ((100, 30), (7,), (40, 40), (1,))
MADE: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "sgd with momentum, foreach": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, weight_decay=0.1, foreach=True
    ),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adamw, foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "adamw, fused": lambda p: torch.optim.AdamW(p, fused=True),
    "adamw, amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "adagrad": torch.optim.Adagrad,
    "rmsprop": lambda p: torch.optim.RMSprop(p, foreach=True),
    "two groups": lambda p: torch.optim.AdamW(
        [{"params": p[:2]}, {"params": p[2:], "weight_decay": 0.0}]
    ),
}


def parameters() -> list[torch.Tensor]:
    found = [torch.randn(shape, requires_grad=True) for shape in SHAPES]
    for each in found:
        each.grad = torch.randn_like(each)
    return found


def large(storage: torch.UntypedStorage) -> int:
    """Bytes of what would be on a device: the numbers of steps (4 bytes each) stay on the CPU."""
    return storage.nbytes() if storage.nbytes() > 4 else 0


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("stepped", [False, True])
def test_against_its_own_steps(name: str, stepped: bool) -> None:
    wanted = parameters()
    real = MADE[name](wanted)
    if stepped:
        real.step()
    found = optimizer_memory(real)
    before = sum(each.numel() * 8 for each in wanted)  # with gradients
    real.step()
    state = [
        v for kept in real.state.values() for v in kept.values() if isinstance(v, torch.Tensor)
    ]
    with LiveBytes(
        [*wanted, *(p.grad for p in wanted if p.grad is not None), *state], large
    ) as seen:
        real.step()
    # a parameter of one element looks like a step's number
    one = 4 * (len(SHAPES) if "fused" in name else 1)
    assert abs(found.state - sum(large(each.untyped_storage()) for each in state)) <= 4 * one
    assert abs(before + found.state + found.transient - seen.peak) <= 6 * one


def test_nothing_is_changed() -> None:
    wanted = parameters()
    optimizer = torch.optim.AdamW(wanted, fused=True)
    before = [each.detach().clone() for each in wanted]
    optimizer_memory(optimizer)
    assert not optimizer.state
    assert all(torch.equal(a, b) for a, b in zip(before, wanted, strict=True))
    assert optimizer.param_groups[0]["fused"] is True
    assert optimizer.param_groups[0]["params"][0] is wanted[0]


def test_alignment() -> None:
    one = [torch.ones(3, requires_grad=True)]
    assert optimizer_memory(torch.optim.AdamW(one), alignment=512).state == 1024


def test_what_cannot_be_known() -> None:
    with pytest.raises(InputError, match="a step of LBFGS cannot be run without data"):
        optimizer_memory(torch.optim.LBFGS(parameters()))
    with pytest.raises(
        InputError, match=r"must be a torch.optim.Optimizer, or a function that makes one"
    ):
        optimizer_of("adamw", [])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be a torch"):
        optimizer_of(lambda p: None, [])  # type: ignore[arg-type, return-value]
