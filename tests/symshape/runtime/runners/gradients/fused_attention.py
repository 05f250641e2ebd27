"""Stand-ins on the CPU for the kernels of attention that keep the state of what they drop.

Torch has these kernels for devices only.  With the stand-ins, whole models with dropout in their
attention run in tied buckets where there is no device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

Mask = Callable[[torch.Size, int], torch.Tensor]
"""Returns numbers from 0 to 1 for scores of such sizes and a seed: those below the share are
dropped.
"""
SEED, OFFSET = 1234, 5
BLOCK = 32
"""The number of which the rows of the logarithms of sums are a multiple, as on a device."""


def by_order(sizes: torch.Size, seed: int) -> torch.Tensor:
    """What is dropped depends on an element's place among all, as on a device."""
    return torch.rand(sizes, generator=torch.Generator().manual_seed(seed))


def by_place(sizes: torch.Size, seed: int) -> torch.Tensor:
    """What is dropped does not depend on the capacities, so that eager drops the same."""
    found = torch.full(sizes, seed)
    for axis, size in enumerate(sizes):
        index = torch.arange(size).view(-1, *[1] * (len(sizes) - axis - 1))
        found = (found * 1_000_003 + index * 7919) % 2_147_483_647
    return found / 2_147_483_647


class _Kernels:
    """The two kernels, with one seed for all calls, so that a call drops the same each time.

    Attributes:
        calls: how often each ran.
    """

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self.calls = {"forward": 0, "backward": 0}

    def _kept(self, scores: torch.Tensor, seed: int, share: float) -> torch.Tensor:
        return (self._mask(scores.shape, seed) >= share).to(scores.dtype) / (1 - share)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor | None,
        compute_log_sumexp: bool,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
    ) -> tuple[torch.Tensor, ...]:
        self.calls["forward"] += 1
        scores = _scores(query, key, bias, is_causal, scale)
        sums = scores.logsumexp(3)
        weights = (scores - sums[..., None]).exp().nan_to_num(0.0)
        made = weights * self._kept(scores, SEED, dropout_p) @ value
        rows = F.pad(sums, [0, -sums.shape[2] % BLOCK], value=math.inf)
        return _laid_out(made), rows, torch.tensor(SEED), torch.tensor(OFFSET)

    def backward(
        self,
        gradient: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        logsumexp: torch.Tensor,
        philox_seed: torch.Tensor,
        philox_offset: torch.Tensor,
        dropout_p: float,
        grad_input_mask: list[bool],
        is_causal: bool = False,
        *,
        scale: float | None = None,
    ) -> tuple[torch.Tensor | None, ...]:
        self.calls["backward"] += 1
        scores = _scores(query, key, bias, is_causal, scale)
        weights = (scores - logsumexp[:, :, : query.shape[2], None]).exp()
        kept = self._kept(scores, int(philox_seed), dropout_p)
        change = (gradient * out).sum(3, keepdim=True)
        factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        of_scores = weights * (gradient @ value.mT * kept - change) * factor
        found = of_scores @ key, of_scores.mT @ query, (weights * kept).mT @ gradient
        return *map(_laid_out, found), None


def _scores(
    query: torch.Tensor,
    key: torch.Tensor,
    bias: torch.Tensor | None,
    causal: bool,
    scale: float | None,
) -> torch.Tensor:
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if causal:
        above = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(above, -math.inf)
    return scores


def _laid_out(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the kernels' layout: the heads of a row beside each other."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: object,
) -> tuple[torch.Tensor, None]:
    """An attention of transformers that runs these kernels; the mask is as for torch's own."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = causal and attention_mask is None and query.shape[2] > 1
    if attention_mask is not None and attention_mask.dtype is torch.bool:
        none = torch.zeros_like(attention_mask, dtype=query.dtype)
        attention_mask = none.masked_fill(~attention_mask, -math.inf)
    op: Any = torch.ops.aten._scaled_dot_product_efficient_attention
    found = op(query, key, value, attention_mask, True, dropout, causal, scale=scaling)[0]
    return found.transpose(1, 2).contiguous(), None


@contextmanager
def fused_attention(drops: Literal["by order", "by place"]) -> Iterator[_Kernels]:
    """Run these kernels on the CPU, which drop elements in one of the two ways."""
    kernels = _Kernels(by_order if drops == "by order" else by_place)
    library = torch.library.Library("aten", "IMPL", "CPU")
    name = "_scaled_dot_product_efficient_attention"
    try:
        library.impl(name, kernels.forward)
        library.impl(f"{name}_backward", kernels.backward)
        yield kernels
    finally:
        library._destroy()
