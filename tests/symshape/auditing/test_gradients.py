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
    losses = functional.cross_entropy(
        scores.flatten(0, 1), labels.clamp(min=0).flatten(), reduction="none"
    )
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


class Attending(nn.Module):
    """One attention of the fused kind, and a loss for each position."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None, causal: bool) -> torch.Tensor:
        query, key, value = self.inner(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind(0)
        hidden = None if mask is None else mask[:, None, None, :].bool()
        found = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=hidden, is_causal=causal
        )
        return self.outer(found.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def attended(*, hidden: bool, causal: bool, ignored: bool) -> symshape.PaddingAudit:
    network = seeded(Attending)

    def step(x: torch.Tensor, mask: torch.Tensor) -> Any:
        losses = network(x, mask if hidden else None, causal).square().sum(-1)
        return torch.autograd.grad(
            (losses * mask if ignored else losses).sum(), list(network.parameters())
        )

    arguments = {
        "x": torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0)),
        "mask": MASK,
    }
    return symshape.audit_padding(step, arguments, {"x": {1: "length"}}, "mask")


@pytest.mark.parametrize(
    ("hidden", "causal", "ignored", "proven"),
    [
        *((True, False, True, True), (False, True, True, True)),
        *((False, False, True, False), (True, False, False, False), (False, True, False, False)),
    ],
)
def test_gradients_of_fused_attention(
    hidden: bool, causal: bool, ignored: bool, proven: bool
) -> None:
    """Keys at padding must be hidden (or come later than each query), and positions of padding must
    have no loss.
    """
    found = attended(hidden=hidden, causal=causal, ignored=ignored)
    if proven:
        assert found.proven, str(found)
    else:
        assert {each.verdict for each in found.outputs[:2]} == {"leaks"}


SHIFTED: dict[str, Any] = {
    "from the second on": lambda losses, mask: losses[:, 1:] * mask[:, 1:],
    "the next one has to be valid": lambda losses, mask: losses[:, :-1] * mask[:, 1:],
}


@pytest.mark.parametrize("name", SHIFTED)
def test_gradients_of_slices(name: str) -> None:
    weight = torch.randn(8, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)

    def step(x: torch.Tensor, mask: torch.Tensor) -> Any:
        losses = (x @ weight).square().sum(-1)
        return torch.autograd.grad(SHIFTED[name](losses, mask).sum(), weight)

    arguments = {
        "x": torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0)),
        "mask": MASK,
    }
    assert symshape.audit_padding(step, arguments, {"x": {1: "length"}}, "mask").proven


def test_gradients_of_slices_with_a_loss_at_padding() -> None:
    weight = torch.randn(8, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)

    def step(x: torch.Tensor, mask: torch.Tensor) -> Any:
        losses = (x @ weight).square().sum(-1)
        return torch.autograd.grad((losses[:, 1:] * mask[:, :-1]).sum(), weight)

    arguments = {
        "x": torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0)),
        "mask": MASK,
    }
    assert not symshape.audit_padding(step, arguments, {"x": {1: "length"}}, "mask").proven
