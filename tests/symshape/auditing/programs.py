"""Programs of padded sequences, right and wrong, with the verdict that an audit has to reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

Program = Callable[..., Any]

MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
LENGTHS = MASK.sum(1)
X = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.where(
    MASK.bool(), torch.randint(0, 8, (3, 5), generator=torch.Generator().manual_seed(1)), -100
)


def example() -> dict[str, torch.Tensor]:
    """Arguments of a program of ``x`` and ``mask``."""
    return {"x": X, "mask": MASK}


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    """A module with the weights of a fixed seed."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()


def _moe(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """A mixture of two experts, each of which takes the first few tokens that choose it."""
    tokens = x.flatten(0, 1)
    chosen = tokens[:, :2].argmax(-1)
    place = functional.one_hot(chosen, 2).cumsum(0).gather(1, chosen[:, None])[:, 0]
    return torch.where((place <= 5)[:, None], tokens * (chosen + 1)[:, None], 0.0).view(x.shape)


def _masked_moe(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The same, but padding takes no place."""
    tokens = x.flatten(0, 1)
    chosen = tokens[:, :2].argmax(-1)
    wanted = functional.one_hot(chosen, 2) * mask.flatten()[:, None]
    place = wanted.cumsum(0).gather(1, chosen[:, None])[:, 0]
    return torch.where((place <= 5)[:, None], tokens * (chosen + 1)[:, None], 0.0).view(x.shape)


def _balance(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The loss that balances two experts: their mean weights, times how often each is chosen."""
    shares = x.flatten(0, 1)[:, :2].softmax(-1)
    return (shares.mean(0) * functional.one_hot(shares.argmax(-1), 2).float().mean(0)).sum()


def _masked_balance(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    valid = mask.flatten()[:, None]
    shares = x.flatten(0, 1)[:, :2].softmax(-1)
    chosen = functional.one_hot(shares.argmax(-1), 2) * valid
    return ((shares * valid).sum(0) / valid.sum() * chosen.sum(0) / valid.sum()).sum()


def _mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.mean(1)


def _masked_mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def _masked_maximum(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(mask[..., None] == 0, -torch.inf).amax(1)


def _last(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x[torch.arange(x.shape[0]), mask.sum(1) - 1]


def _scale(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scale = x.abs().amax() / 127
    return (x / scale).round() * scale


def _masked_scale(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scale = torch.where(mask.bool()[..., None], x, 0.0).abs().amax() / 127
    return (x / scale).round() * scale


def _row_scale(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round() * scale


def _attention(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = x @ x.transpose(1, 2) + (1 - mask[:, None, :]) * -1e9
    return scores.softmax(-1) @ x


def _convolution(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return functional.conv1d(x.transpose(1, 2), torch.ones(8, 8, 3), padding=1)


def _masked_convolution(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return _convolution(x * mask[..., None], mask)


def _neighbour(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x + functional.pad(x[:, 1:], (0, 0, 0, 1))


_heads = seeded(lambda: nn.MultiheadAttention(8, 2, batch_first=True)).eval()
_recurrent = seeded(lambda: nn.GRU(8, 4, batch_first=True))
_two_ways = seeded(lambda: nn.LSTM(8, 4, batch_first=True, bidirectional=True))
_trained, _kept = nn.BatchNorm1d(8), nn.BatchNorm1d(8).eval()

PROVEN: dict[str, Program] = {
    "masked mean": _masked_mean,
    "masked maximum": _masked_maximum,
    "last valid position": _last,
    "first position": lambda x, mask: x[:, 0],
    "masked scale": _masked_scale,
    "scale of each token": _row_scale,
    "capacity of experts": _masked_moe,
    "balance of experts": _masked_balance,
    "elements by the mask": lambda x, mask: x[mask.bool()].sum(0),
    "layer norm": lambda x, mask: functional.layer_norm(x, (8,)),
    "rms norm": lambda x, mask: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "batch norm with kept statistics": lambda x, mask: _kept(x.transpose(1, 2)),
    "attention with an additive mask": _attention,
    "attention with a mask": lambda x, mask: functional.scaled_dot_product_attention(
        x, x, x, attn_mask=mask[:, None, :].bool()
    ),
    "causal attention": lambda x, mask: functional.scaled_dot_product_attention(
        x, x, x, is_causal=True
    ),
    "heads with a mask": lambda x, mask: _heads(x, x, x, key_padding_mask=mask == 0)[0],
    "masked convolution": _masked_convolution,
    "running sum": lambda x, mask: x.cumsum(1),
    "recurrent layer": lambda x, mask: _recurrent(x)[0],
    "position ids": lambda x, mask: x + (mask.cumsum(1) - 1)[..., None],
    "sequence first": lambda x, mask: (
        x.transpose(0, 1).contiguous().view(-1, 8).softmax(-1).view(x.shape[1], x.shape[0], 8)
    ),
}
"""Programs of ``x`` and ``mask`` whose valid positions do not depend on padding on the right."""

LEAKS: dict[str, tuple[Program, str, str]] = {
    "mean": (_mean, "aten.mean.dim", "divide the sum of x * mask by the sum of the mask"),
    "maximum": (lambda x, mask: x.amax(1), "aten.amax.default", "minus infinity"),
    "last position": (lambda x, mask: x[:, -1], "aten.select.int", "last valid position"),
    "scale": (_scale, "aten.amax.default", ""),
    "batch norm": (
        lambda x, mask: _trained(x.transpose(1, 2)),
        "aten.native_batch_norm.default",
        "normalise over",
    ),
    "group norm": (
        lambda x, mask: functional.group_norm(x.transpose(1, 2), 2),
        "aten.native_group_norm.default",
        "normalise over",
    ),
    "instance norm": (
        lambda x, mask: functional.instance_norm(x.transpose(1, 2)),
        "aten.native_batch_norm.default",
        "normalise over",
    ),
    "heads without a mask": (
        lambda x, mask: _heads(x, x, x)[0],
        "aten._native_multi_head_attention.default",
        "",
    ),
    "convolution": (_convolution, "aten.convolution.default", "multiply its input by the mask"),
    "neighbour": (_neighbour, "", ""),
    "state after the padding": (lambda x, mask: _recurrent(x)[1], "aten.gru.input", "pack"),
    "recurrent layer of both directions": (
        lambda x, mask: _two_ways(x)[0],
        "aten.lstm.input",
        "pack",
    ),
    "capacity of experts": (_moe, "aten.cumsum.default", ""),
    "balance of experts": (
        _balance,
        "aten.mean.dim",
        "divide the sum of x * mask by the sum of the mask",
    ),
    "flip": (lambda x, mask: x.flip(1), "aten.flip.default", ""),
    "reverse running sum": (lambda x, mask: x.flip(1).cumsum(1).flip(1), "aten.flip.default", ""),
    "branch on data": (lambda x, mask: x[x[..., 0] > 0].sum(0), "aten.index.Tensor", ""),
}
"""Programs into which padding leaks: with the op, and a part of the repair."""
