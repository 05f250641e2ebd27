"""Gradients of parameters: unaffected where padding has no loss, leaks where it has one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import nn

import symshape
from tests.symshape.auditing.programs import LABELS, MASK, seeded

IDS = torch.randint(0, 10, (3, 5), generator=torch.Generator().manual_seed(2))


class Network(nn.Module):
    """A small transformer with a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(functional.gelu(self.inner(self.table(ids))) + self.table(ids))
        hidden_keys = (1 - mask[:, None, :].float()) * torch.finfo(hidden.dtype).min
        weights = (hidden @ hidden.transpose(1, 2) + hidden_keys).softmax(-1)
        return self.outer(torch.relu(hidden + weights @ hidden))  # type: ignore[no-any-return]


def ignored(scores: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


def masked(scores: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    losses = functional.cross_entropy(scores.flatten(0, 1), labels.clamp(min=0).flatten(), reduction="none")
    return (losses * mask.flatten()).sum() / mask.sum()


def counted(scores: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), labels.clamp(min=0).flatten())


def audit(loss: Any) -> symshape.PaddingAudit:
    network = seeded(Network)

    def step(ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> Any:
        found = loss(network(ids, mask), mask, labels)
        return found, torch.autograd.grad(found, list(network.parameters()))

    padded = {"ids": {1: "length"}, "labels": {1: "length"}}
    arguments = {"ids": IDS, "mask": MASK, "labels": LABELS}
    return symshape.audit_padding(step, arguments, padded, "mask", fixed={"labels": -100})


@pytest.mark.parametrize("loss", [ignored, masked])
def test_gradients_without_loss_at_padding(loss: Any) -> None:
    found = audit(loss)
    assert found.proven, str(found)
    assert len(found.outputs) == 8


def test_gradients_with_a_loss_at_padding() -> None:
    assert {each.verdict for each in audit(counted).outputs} == {"leaks"}


def test_gradients_scaled_by_the_number_of_tokens() -> None:
    table = torch.randn(10, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)

    def step(ids: torch.Tensor, mask: torch.Tensor) -> Any:
        rows = functional.embedding(ids, table, scale_grad_by_freq=True)
        return torch.autograd.grad((rows * mask[..., None]).sum(), table)

    found = symshape.audit_padding(step, {"ids": IDS, "mask": MASK}, {"ids": {1: "length"}}, "mask")
    assert not found.proven
