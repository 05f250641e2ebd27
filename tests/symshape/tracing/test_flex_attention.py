"""``flex_attention`` inside of a traced function: eager's results, one program for all lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import symshape
from tests.symshape.tracing.flows import assert_alike

pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore:.*return_lse is deprecated.*"),
]
SIZES = (4, 7, 130, 1, 128, 300)
SLOPES = torch.rand(4)
TABLE = torch.nn.Parameter(torch.rand(4, 1024), requires_grad=False)


def _causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


def _slopes(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score + (j - i) * SLOPES[h]


def plain(q: Tensor) -> Any:
    return flex_attention(q, q * 2, q + 1)


def with_scores(q: Tensor) -> Any:
    return flex_attention(q, q, q, score_mod=_slopes, scale=0.5)


def with_a_table(q: Tensor) -> Any:
    n = q.size(2)
    return flex_attention(
        q, q, q, score_mod=lambda s, b, h, i, j: torch.tanh(s / 5) * 5 + TABLE[h, i - j + n]
    )


def causal(q: Tensor) -> Any:
    n = q.size(2)
    return flex_attention(
        q, q, q, block_mask=create_block_mask(_causal, None, None, n, n, device="cpu")
    )


def documents(q: Tensor) -> Any:
    n = q.size(2)
    ids = torch.arange(n) // 3
    mask = create_block_mask(
        lambda b, h, i, j: (ids[i] == ids[j]) & (i >= j), None, None, n, n, device="cpu"
    )
    return flex_attention(q, q, q, block_mask=mask, score_mod=_slopes)


def grouped(q: Tensor) -> Any:
    return flex_attention(q, q[:, :2], q[:, 2:], enable_gqa=True)


def with_sums(q: Tensor) -> Any:
    return flex_attention(q, q, q[..., :3], return_lse=True)


def laid_out_otherwise(q: Tensor) -> Any:
    return flex_attention(q.transpose(1, 2).contiguous().transpose(1, 2), q, q)


PROGRAMS = [
    plain,
    with_scores,
    with_a_table,
    causal,
    documents,
    grouped,
    with_sums,
    laid_out_otherwise,
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "dtype"),
    [
        *((fn, torch.float32) for fn in PROGRAMS),
        (causal, torch.bfloat16),
        (grouped, torch.bfloat16),
    ],
)
def test_as_eager(fn: Callable[..., Any], dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    fast = symshape.compile(fn, fullgraph=True)
    for n in SIZES if dtype is torch.float32 else SIZES[:2]:
        q = torch.rand(2, 4, n, 8).to(dtype)
        assert_alike(fn(q), fast(q))
    assert fast.stats().traces <= 5  # a mask of one block, of more, or of whole ones


def test_of_a_mask_that_is_an_argument() -> None:
    fast = symshape.compile(
        lambda q, mask: flex_attention(q, q, q, block_mask=mask), fullgraph=True
    )
    for n in (4, 7, 130, 128):
        q, mask = torch.rand(1, 2, n, 8), create_block_mask(_causal, None, None, n, n, device="cpu")
        assert_alike(flex_attention(q, q, q, block_mask=mask), fast(q, mask))


def test_gradients_are_refused_by_torch() -> None:
    q = torch.rand(1, 2, 4, 8, requires_grad=True)
    for fn in (plain, symshape.compile(plain, fullgraph=True)):
        with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
            fn(q)
