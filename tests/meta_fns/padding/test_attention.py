"""Fused attention on the CPU answers 0 or NaN for a row with a NaN, by the number of keys: padded
calls as eager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape import Dim, events
from tests.fuzz.padded_runners import poison_buffers

NAN, INF = float("nan"), float("inf")
LENGTHS = (2, 5, 8, 15, 16, 17, 31, 33, 40)


def plain(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, k)


def causal(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, k, is_causal=True)


def masked(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, k, attn_mask=q[0, 0] @ k[0, 0].mT)


def spoilt(length: int, where: str, number: float) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(length)
    q, k = torch.randn(1, 2, length, 4), torch.randn(1, 2, length, 4)
    {"query": q, "key": k}[where][0, 1, length // 2, 0] = number
    return q, k


def run(fn: Callable[..., Any], calls: list[tuple[torch.Tensor, torch.Tensor]]) -> list[str]:
    """The reasons of the calls that ran op by op."""
    length = {d: Dim(f"d{d}") for d in (2,)}
    compiled = symshape.compile(
        fn, dynamic={"q": length, "k": length}, runner="padded", fullgraph=True
    )
    said: list[str] = []
    unsubscribe = events.subscribe(
        lambda e: said.append(e.reason) if isinstance(e, events.RunnerFallback) else None
    )
    try:
        for number, (q, k) in enumerate(calls):
            poison_buffers(compiled, number)
            torch.testing.assert_close(
                compiled(q, k), fn(q, k), rtol=1e-4, atol=1e-4, equal_nan=True, msg=str(q.shape)
            )
    finally:
        unsubscribe()
    assert any(entry.runner.buckets for entry in compiled.entries)
    return said


@pytest.mark.parametrize("where", ["query", "key"])
@pytest.mark.parametrize("fn", [plain, causal, masked])
def test_rows_with_a_nan(fn: Callable[..., Any], where: str) -> None:
    said = run(
        fn, [spoilt(length, where, number) for length in LENGTHS for number in (0.0, NAN, INF)]
    )
    assert said
    assert all("not finite" in each for each in said)


@pytest.mark.parametrize("fn", [plain, causal, masked])
def test_finite_calls_are_padded(fn: Callable[..., Any]) -> None:
    assert not run(fn, [spoilt(length, "query", 0.0) for length in LENGTHS])


def test_masks_may_hide_with_infinity_but_not_with_a_nan() -> None:
    def fn(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q, attn_mask=k[0, 1, :, :1].mT)

    assert not run(fn, [spoilt(length, "key", -INF) for length in LENGTHS])
    said = run(fn, [spoilt(length, "key", NAN) for length in LENGTHS])
    assert said
    assert all("mask" in each for each in said)
