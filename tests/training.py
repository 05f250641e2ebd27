"""Small models in training, whose batch and length change at every step: what the backend is tested
and measured on.

GPT-2, Llama, BERT and a ResNet are those of ``tests.models``; in ``TRAINED`` dropout is off, so
that two runs compare.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch
from torch import nn

from tests.models import MODELS, ids

Step = Callable[..., Any]
"""A model, or what compiles one: called with keyword arguments."""


@attrs.frozen
class Trained:
    """A model: how to make it, and how to call it with a batch of inputs of some size."""

    name: str
    make: Callable[[], nn.Module]
    call: Callable[[int, int], dict[str, torch.Tensor]]
    dropout: float = 0.0

    def build(self) -> nn.Module:
        """The model in training mode, with the same weights each time."""
        torch.manual_seed(0)
        model = self.make().train()
        for each in model.modules():
            if isinstance(each, nn.Dropout):
                each.p = self.dropout
            if isinstance(each, nn.MultiheadAttention):
                each.dropout = self.dropout
        return model


class Recurrent(nn.Module):
    """An embedding, a bidirectional LSTM of two layers, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        self.lstm = nn.LSTM(32, 48, 2, batch_first=True, bidirectional=True)
        self.head = nn.Sequential(nn.LayerNorm(96), nn.Linear(96, 100))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of shape (batch, length, 100)."""
        hidden, _ = self.lstm(self.embedding(tokens))
        logits: torch.Tensor = self.head(torch.tanh(hidden))
        return logits


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 3)


def _of_transformers(name: str) -> Trained:
    (model,) = (each for each in MODELS if each.name == name)
    return Trained(name, lambda: model.build().train(), model.call)


TRAINED: tuple[Trained, ...] = (
    Trained("encoder", _encoder, lambda batch, length: {"src": torch.randn(batch, length, 64)}),
    *map(_of_transformers, ("gpt2", "llama", "bert", "resnet")),
    Trained("lstm", Recurrent, lambda batch, length: {"tokens": ids(batch, length)}),
)

DROPPING: tuple[Trained, ...] = tuple(
    attrs.evolve(each, name=f"{each.name}, dropout", dropout=0.1)
    for each in TRAINED
    if each.name in ("encoder", "gpt2", "bert")
)
"""As people train them: inside attention and outside, a tenth is dropped."""


def sizes(steps: int, seed: int = 0) -> Iterator[tuple[int, int]]:
    """Batch and length of each step."""
    drawn = random.Random(seed)
    for _ in range(steps):
        yield drawn.randint(2, 9), drawn.randint(5, 40)


def loss_of(result: Any) -> torch.Tensor:
    """A loss that depends on every tensor of a result, so that every parameter has a gradient."""
    tensors = [result] if isinstance(result, torch.Tensor) else result.to_tuple()
    return torch.stack([each.pow(2).mean() for each in tensors]).sum()


def step(run: Step, model: nn.Module, call: dict[str, torch.Tensor]) -> torch.Tensor:
    """Forward and backward; the gradients are left on the parameters of ``model``."""
    model.zero_grad()
    loss = loss_of(run(**call))
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()
