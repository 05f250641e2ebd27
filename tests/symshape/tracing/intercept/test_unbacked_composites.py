"""Dropout and attention over sizes that only data tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape import DataDependentError
from tests.symshape.eager import agree

R = torch.randn


def _calls(*kept: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(R(6, 8), torch.arange(6) < count) for count in kept]


def test_dropout() -> None:
    for training, p in ((True, 0.5), (True, 1.0), (False, 0.5), (True, 0.0)):

        def fn(x: torch.Tensor, m: torch.Tensor, training: bool = training, p: float = p) -> Any:
            return F.dropout(x[m], p, training) + 1

        _, seen = agree(fn, *_calls(4, 6, 1))
        assert seen == ["equal"] * 3


def test_gradients_go_through() -> None:
    def fn(x: torch.Tensor, m: torch.Tensor) -> Any:
        return F.dropout(x[m], 0.5, True)

    x, m = R(6, 8, requires_grad=True), torch.arange(6) < 3
    traced = symshape.trace(fn, x, m)
    found = []
    for run in (fn, traced):
        torch.manual_seed(0)
        found.append(torch.autograd.grad(run(x, m).square().sum(), x)[0])
    assert torch.equal(*found)


@pytest.mark.parametrize("shape", [(1, -1, 8), (1, 1, -1, 8), (-1, 8)])
def test_attention(shape: tuple[int, ...]) -> None:
    def fn(x: torch.Tensor, m: torch.Tensor) -> Any:
        found = x[m]
        found = found.view([found.size(0) if size == -1 else size for size in shape])
        return F.scaled_dot_product_attention(found, found, found) * 2

    _, seen = agree(fn, *_calls(4, 6, 1))
    assert seen == ["equal"] * 3


def test_what_is_not_known_to_be_laid_out_in_order_is_refused() -> None:
    def fn(x: torch.Tensor, m: torch.Tensor) -> Any:
        found = x[m].view(1, -1, 2, 4).transpose(1, 2)
        return F.scaled_dot_product_attention(found, found, found)

    with pytest.raises(DataDependentError):
        symshape.trace(fn, R(6, 8), torch.arange(6) < 4)


@pytest.mark.parametrize("sizes", [("b", 1, 1, "k"), (1, "h", "q", "k"), ("b", 1, "q", 1), (1, "k")])
def test_a_mask_that_is_broadcast_takes_the_fused_kernel(sizes: tuple[int | str, ...]) -> None:
    def call(b: int, q: int, k: int) -> tuple[torch.Tensor, ...]:
        known = {"b": b, "h": 2, "q": q, "k": k}
        mask = R([size if isinstance(size, int) else known[size] for size in sizes])
        return R(b, 2, q, 4), R(b, 2, k, 4), R(b, 2, k, 4), mask

    def fn(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    with torch.no_grad():
        traced, seen = agree(fn, call(2, 5, 6), call(3, 4, 7), call(5, 7, 7), dynamic=True)
    assert seen == ["equal"] * 3
    assert [str(node.op) for node in traced.graph.nodes] == ["aten._scaled_dot_product_flash_attention_for_cpu.default"]
