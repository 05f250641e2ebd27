"""Padding's 0 times an infinite weight is NaN, which a transposed convolution would add to valid
results: such calls run op by op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape import events

INF = float("inf")
LENGTHS = (9, 7, 5, 8, 6)


def _transposed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.conv_transpose1d(x, w)


def _with_steps(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.conv_transpose1d(x, w, stride=2, padding=1)


def _in_two_dimensions(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.conv_transpose2d(x[:, :, None], w[:, :, None])


EVERY = (_transposed, _with_steps, _in_two_dimensions)


def _run(fn: Callable[..., Any], x_end: float, taps: list[float], dtype: torch.dtype) -> list[str]:
    """The reasons of the calls that ran op by op."""
    compiled = symshape.compile(fn, dynamic={"x": {2: "n"}}, runner="padded", fullgraph=True)
    said: list[str] = []
    unsubscribe = events.subscribe(
        lambda e: said.append(e.reason) if isinstance(e, events.RunnerFallback) else None
    )
    w = torch.tensor(taps, dtype=dtype).repeat(2, 2, 1)
    try:
        for n in LENGTHS:
            x = torch.ones(2, 2, n, dtype=dtype)
            x[:, :, -1] = x_end
            torch.testing.assert_close(compiled(x, w), fn(x, w), equal_nan=True)
    finally:
        unsubscribe()
    assert any(entry.runner.buckets for entry in compiled.entries)
    return said


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("taps", [[1.0, INF, 2.0], [-INF, 1.0, INF], [1.0, 2.0, float("nan")]])
@pytest.mark.parametrize("fn", EVERY)
def test_infinite_weights(fn: Callable[..., Any], taps: list[float], dtype: torch.dtype) -> None:
    said = _run(fn, 1.0, taps, dtype)
    assert len(said) == len(LENGTHS)
    assert all("not finite" in each for each in said)


@pytest.mark.parametrize("fn", EVERY)
def test_finite_numbers_are_padded(fn: Callable[..., Any]) -> None:
    assert not _run(fn, -3.0, [1.0, 1e9, -2.0], torch.float32)


def test_a_window_of_one_position_needs_no_check() -> None:
    assert not _run(_transposed, 1.0, [INF], torch.float32)
