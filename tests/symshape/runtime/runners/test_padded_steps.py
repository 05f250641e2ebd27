"""Whole steps of training in one padded program: parameters, moments and gradients are eager's,
whatever is padded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.runtime.runners.padded.runner import PaddedRunner
from symshape.runtime.runners.pieces.runner import padded_parts
from tests.meta_fns.padding.poison import poison
from tests.sampling import sampled
from tests.training import TRAINED, loss_of

SIZES = ((6, 23), (5, 17), (3, 9), (6, 24), (5, 18), (3, 12), (5, 21), (3, 10), (6, 19), (3, 11))
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=1e-2),
    "one by one": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, foreach=False),
    "adamw": lambda parameters: torch.optim.AdamW(
        parameters, lr=1e-3, eps=1e-4
    ),  # reads its count on the host
}


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    call: dict[str, torch.Tensor],
    *,
    detach: bool = True,
) -> torch.Tensor:
    optimizer.zero_grad()
    loss = loss_of(model(**call))
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach() if detach else loss


def _poisoned(compiled: Any, number: int) -> None:
    for entry in compiled.entries:
        for _, runner in padded_parts(entry.runner, entry.program):
            for bucket in runner.buckets:
                for buffer in bucket.buffers:
                    poison(buffer, number)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model", "detach"), sampled(OPTIMIZERS, ["gpt2", "encoder"], [True, False], every=5)
)
def test_steps_of_training(model: str, name: str, detach: bool) -> None:
    (trained,) = (each for each in TRAINED if each.name == model)
    theirs, ours = (trained.build() for _ in range(2))
    by_eager, by_us = (OPTIMIZERS[name](each.parameters()) for each in (theirs, ours))
    step: Any = symshape.compile(
        lambda call: _step(ours, by_us, call, detach=detach), runner="padded"
    )
    for number, (batch, length) in enumerate(SIZES):
        call = trained.call(batch, length)
        _poisoned(step, number)
        loss, its_loss = step(call), _step(theirs, by_eager, call, detach=detach)
        torch.testing.assert_close(loss, its_loss, rtol=1e-4, atol=1e-5)
        assert loss.requires_grad is not detach
        for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, its, rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(mine.grad, its.grad, rtol=1e-2, atol=1e-5)
    assert step.stats().fallbacks == 0
    last = step.entries[-1]
    assert any(runner.buckets for _, runner in padded_parts(last.runner, last.program)), (
        last.runner.describe()
    )
    if name != "adamw" and detach:
        assert isinstance(last.runner, PaddedRunner)
        assert last.runner.instead is None
