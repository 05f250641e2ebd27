"""Padded programs of whole models and steps of training are derived once for all their buckets, not
once a bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import symshape
from symshape.runtime.padding.blueprint import Blueprints

SIZES = [(3, 10), (5, 17), (4, 12), (7, 18), (8, 30), (6, 40)]


class _Attends(nn.Module):
    """Attention over heads that are split off by ``view`` and joined by ``reshape``, of a
    transposed tensor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.take, self.give = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = self.take(x).view(batch, length, 3, 4, 4).permute(2, 0, 3, 1, 4)
        weights = (query @ key.mT).softmax(-1)
        return self.give((weights @ value).transpose(1, 2).reshape(batch, length, width))


def _step() -> Callable[..., Any]:
    model = _Attends()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), torch.zeros_like(x))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


PROGRAMS: dict[str, Callable[[], Callable[..., Any]]] = {
    "attention": lambda: torch.no_grad()(_Attends()),
    "a whole step": _step,
    "a reshape that copies": lambda: lambda x: x.transpose(0, 1).reshape(-1, 16).softmax(-1) + 1,
    "a flattened mask": lambda: lambda x: x.transpose(1, 2).flatten(1)[:, : x.shape[1]].relu(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_derivation_serves_all_buckets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Blueprints] = []
    init = Blueprints.__init__

    def noted(self: Blueprints, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(Blueprints, "__init__", noted)
    compiled = symshape.compile(PROGRAMS[name](), dynamic=True, runner="padded")
    for batch, length in SIZES:
        compiled(torch.randn(batch, length, 16))
    buckets = sum(len(runner.buckets) for runner in _padded(compiled))
    assert buckets >= 4
    assert max(each.derived for each in made) == 1


def _padded(compiled: Any) -> list[Any]:
    found = []
    for entry in compiled.entries:
        stages = getattr(entry.runner, "stages", None)
        found += (
            [entry.runner]
            if stages is None
            else [each.runner for each in stages if each.runner is not None]
        )
    return found
