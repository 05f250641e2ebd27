"""``F.interpolate`` where its size or its input comes from elsewhere than the traced tensor:
eager's, few programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import symshape


class Positions(nn.Module):
    """A parameter and a buffer, made as large as the image."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.rand(1, 2, 4, 4))
        self.register_buffer("line", torch.rand(1, 2, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        high, wide = x.shape[-2:]
        grid = F.interpolate(self.places, size=(high, wide), mode="bicubic", align_corners=False)
        plain = F.interpolate(self.places, size=(1, 1), mode="bilinear") + F.interpolate(
            self.places, size=1
        )
        return x + grid + plain + F.interpolate(self.line, high, mode="linear")[..., None]


def test_a_parameter_becomes_as_large_as_an_argument() -> None:
    model = Positions()
    fast = symshape.compile(model, fullgraph=True)
    for n in (4, 6, 8, 5, 3, 1):
        x = torch.rand(2, 2, n, n + 1)
        expected, got = model(x), fast(x)
        assert torch.equal(expected, got)
        expected.sum().backward()
        assert model.places.grad is not None
        wanted, model.places.grad = model.places.grad, None
        got.sum().backward()
        assert torch.equal(model.places.grad, wanted)
        model.places.grad = None
    assert symshape.compiled_of(fast).stats().traces == 2


def _counted(x: torch.Tensor, kept: torch.Tensor) -> Any:
    high = kept.sum(0)[0]
    return F.interpolate(x, size=(high, high + 1), mode="bilinear", align_corners=True)


def _square(x: torch.Tensor, kept: torch.Tensor) -> Any:
    return F.interpolate(x, size=kept.sum(), mode="nearest")


def _made_of_a_size(x: torch.Tensor, kept: torch.Tensor) -> Any:
    return F.interpolate(x, size=torch.tensor(2 * x.shape[2]))


@pytest.mark.parametrize("fn", [_counted, _square, _made_of_a_size])
def test_a_size_in_a_tensor(fn: Callable[..., Any]) -> None:
    fast = symshape.compile(fn, fullgraph=True)
    for n in (4, 6, 8, 5, 2):
        x, kept = torch.rand(2, 2, n, n), (torch.rand(n, n) > 0.5).long()
        kept[0] = 1
        assert torch.equal(fn(x, kept), fast(x, kept))
    assert fast.stats().traces == 2
