"""What the tests of ``symshape.compile`` share."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn


def traces(fn: Any) -> int:
    """How many programs a compiled function has traced."""
    return int(fn.stats().traces)


def same(now: Any, then: Any) -> bool:
    """Whether two tensors agree in values, dtype and strides."""
    return torch.equal(now, then) and now.dtype == then.dtype and now.stride() == then.stride()


def nested() -> torch.Tensor:
    """A nested tensor of no layout that strided or jagged ones have: it answers no question about
    its sizes.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that these are a prototype
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


class Scaled(nn.Module):
    """Parameters, a buffer, a child with a mode, an attribute and a container: state of every
    kind.
    """

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("shift", torch.zeros(3))
        self.scale = 2.0
        self.powers = [1, 2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(self.linear(x)) * self.scale + self.shift
        return y ** self.powers[0] if self.training else y * self.powers[1]
