"""Numbers of data that a program rounds to integers, and divides by."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import symshape

CALLS = (
    torch.tensor([1.0, 2.5, -1.0]),
    torch.randn(6),
    torch.full((4,), -0.625),
    torch.zeros(5),
    torch.ones(0),
)


def _each(number: float) -> tuple[int, ...]:
    return math.floor(number), math.ceil(number), math.trunc(number), int(number), round(number)


def _some(x: torch.Tensor) -> torch.Tensor:
    count = max(1, int((x > 0).sum() * 0.7))
    return x.topk(min(count, x.shape[0])).values


def _share(x: torch.Tensor) -> Any:
    n = int(x.shape[0] * x.sum().sigmoid().item())
    return x[:n] * 2, x[n:], n


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: _each(x.sum().item()),
        lambda x: _each(x.sum().item() * -2.5 + 0.5),
        lambda x: int(x.sum() * 1e15),
        _some,
        _share,
    ],
)
def test_rounded_as_python_does(fn: Any) -> None:
    compiled = symshape.compile(fn, fullgraph=True)
    for x in CALLS:
        assert repr(compiled(x)) == repr(fn(x))
    assert compiled.stats().traces == 2


def test_what_is_no_integer_or_too_large_is_left_to_eager() -> None:
    compiled = symshape.compile(lambda x: int(x.sum()), fullgraph=True)
    assert compiled(torch.tensor([2.0, 3.5])) == 5
    assert compiled(torch.tensor([1e30, 0.0])) == int(torch.tensor(1e30))
    with pytest.raises(OverflowError):
        compiled(torch.tensor([math.inf, 0.0]))
    with pytest.raises(ValueError, match="NaN"):
        compiled(torch.tensor([math.nan, 0.0]))


def test_a_divisor_that_only_data_tell() -> None:
    def ratio(x: torch.Tensor) -> Any:
        more, less = (x > 0).sum().item(), (x < 0).sum().item()
        return more / less, more // less, more % less

    def caught(x: torch.Tensor) -> Any:
        try:
            return ratio(x)
        except ZeroDivisionError:
            return None

    def counted(x: torch.Tensor, step: torch.Tensor) -> Any:
        step += 1
        return (1 + step.item()) / (10 + step.item()), step

    for fn in (ratio, caught):
        compiled = symshape.compile(fn, fullgraph=True)
        compiled(CALLS[0])
        for x in CALLS:
            if fn is ratio and not (x < 0).any():
                with pytest.raises(ZeroDivisionError):
                    compiled(x)
            else:
                assert repr(compiled(x)) == repr(fn(x))
    compiled = symshape.compile(counted, fullgraph=True)
    for k in range(3):
        assert compiled(CALLS[0], torch.tensor(k)) == counted(CALLS[0], torch.tensor(k))
