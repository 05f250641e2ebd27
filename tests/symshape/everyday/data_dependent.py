"""Sizes that only data tell: what is found, picked, counted."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.symshape.everyday.program import Arguments, Made, everyday, flat, rows

Tensor = torch.Tensor
KIND = "data dependent"


def _masked(b: int, n: int) -> Arguments:
    return torch.randn(b, n, 8), torch.rand(b, n) > 0.4


def _two_masked(b: int, n: int) -> Arguments:
    return torch.randn(b, n, 8), torch.randn(b, n, 8), torch.rand(b, n) > 0.4


@everyday(KIND)
def nonzero_times_two() -> Made:
    return lambda x: (x > 0).nonzero() * 2, flat


@everyday(KIND)
def argwhere_as_floats() -> Made:
    return lambda x: torch.argwhere(x > 0).float() / 3, flat


@everyday(KIND)
def nonzero_as_tuple() -> Made:
    return lambda x: [each + 1 for each in torch.nonzero(x > 0, as_tuple=True)], flat


@everyday(KIND)
def where_of_one() -> Made:
    return lambda x: x[torch.where(x > 0)], flat


@everyday(KIND)
def dropout_of_picked() -> Made:
    return lambda x, m: F.dropout(x[m], 0.5, training=True), _masked


@everyday(KIND)
def linear_of_picked() -> Made:
    net = nn.Linear(8, 5)
    return lambda x, m: F.relu(net(x[m])), _masked


@everyday(KIND)
def layer_norm_of_picked() -> Made:
    return torch.no_grad()(lambda x, m: F.layer_norm(x[m], (8,))), _masked


@everyday(KIND)
def attention_on_picked() -> Made:
    def run(x: Tensor, m: Tensor) -> Tensor:
        found = x[m][None]
        return F.scaled_dot_product_attention(found, found, found)

    return run, _masked


@everyday(KIND)
def attention_by_hand_on_picked() -> Made:
    def run(x: Tensor, m: Tensor) -> Tensor:
        found = x[m]
        return torch.softmax(found @ found.T / math.sqrt(8), -1) @ found

    return run, _masked


@everyday(KIND)
def attention_layer_on_picked() -> Made:
    net = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def run(x: Tensor, m: Tensor) -> Tensor:
        found = x[m][None]
        return net(found, found, found, need_weights=False)[0]

    return torch.no_grad()(run), _masked


@everyday(KIND)
def heads_of_picked() -> Made:
    def run(x: Tensor, m: Tensor) -> Tensor:
        found = x[m]
        return found.view(found.size(0), 2, 4).transpose(0, 1).reshape(2, -1)

    return run, _masked


@everyday(KIND)
def one_mask_twice() -> Made:
    return lambda x, y, m: x[m] + y[m], _two_masked


@everyday(KIND)
def one_mask_three_ways() -> Made:
    def run(x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        return x[m] * torch.masked_select(y[..., 0], m)[:, None] + m.nonzero().sum(1, keepdim=True)

    return run, _two_masked


@everyday(KIND)
def mask_written_between() -> Made:
    def run(x: Tensor, y: Tensor, m: Tensor) -> Any:
        mask = m.clone()
        first = x[mask].sum(0)
        mask[0] = True
        return first, y[mask] * 2

    return run, _two_masked


@everyday(KIND)
def loss_of_picked() -> Made:
    def run(x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        return F.mse_loss(x[m], y[m])

    return run, _two_masked


@everyday(KIND)
def cross_entropy_of_picked() -> Made:
    def run(x: Tensor, labels: Tensor) -> Tensor:
        m = labels >= 0
        return F.cross_entropy(x[m], labels[m])

    return run, lambda b, n: (torch.randn(b, n, 8), torch.randint(-2, 8, (b, n)))


@everyday(KIND)
def reductions_of_picked() -> Made:
    def run(x: Tensor, m: Tensor) -> Any:
        found = x[m]
        return (
            found.sum(),
            found.mean(0),
            found.std(1),
            found.softmax(-1),
            found.cumsum(0),
            found.norm(),
        )

    return run, _masked


@everyday(KIND)
def picked_put_back() -> Made:
    def run(x: Tensor, m: Tensor) -> Tensor:
        result = torch.zeros_like(x)
        result[m] = x[m] * 3
        return result

    return run, _masked


@everyday(KIND)
def picked_rows_of_two() -> Made:
    def run(x: Tensor, m: Tensor) -> Tensor:
        found = m.nonzero()
        return x[found[:, 0], found[:, 1]]

    return run, _masked


@everyday(KIND)
def picked_joined_with_all() -> Made:
    return lambda x, m: torch.cat([x[m], x.flatten(0, 1)]), _masked


@everyday(KIND)
def unique_counts() -> Made:
    def run(x: Tensor) -> Any:
        found, counts = torch.unique(x, return_counts=True)
        return found * 2, counts / counts.sum()

    return run, lambda b, n: (torch.randint(4, (b, n)),)


@everyday(KIND)
def unique_embedded_and_back() -> Made:
    net = nn.Embedding(9, 8)

    def run(x: Tensor) -> Tensor:
        found, back = torch.unique(x, return_inverse=True)
        return net(found)[back]

    return run, lambda b, n: (torch.randint(9, (b, n)),)


@everyday(KIND)
def repeated_as_counted() -> Made:
    return lambda x, k: torch.repeat_interleave(x, k, 0) + 1, lambda b, n: (
        torch.randn(b, n),
        torch.arange(b),
    )


@everyday(KIND)
def range_up_to_an_item() -> Made:
    def run(x: Tensor, k: Tensor) -> Tensor:
        size = k.item()
        torch._check(size >= 0)
        torch._check(size <= x.size(0))
        return x[:size] * 2

    return run, lambda b, n: (torch.randn(b, n), torch.tensor(2))


@everyday(KIND)
def item_of_a_size() -> Made:
    def run(x: Tensor) -> Tensor:
        length = torch.tensor(x.size(1)).item()
        return x.new_zeros(length) + 1

    return run, flat


@everyday(KIND)
def item_of_sizes_multiplied() -> Made:
    def run(x: Tensor) -> Tensor:
        total = torch.prod(torch.tensor(x.shape)).item()
        return x.reshape(total)

    return run, flat


@everyday(KIND)
def lists_of_sizes_as_tensor() -> Made:
    def run(x: Tensor) -> Tensor:
        start = torch.as_tensor([(x.size(0), x.size(1))], dtype=torch.long)
        return x.sum() * start

    return run, flat


@everyday(KIND)
def arange_by_halves() -> Made:
    return lambda x: torch.arange(0, x.size(0), 0.5) * x.size(1), flat


@everyday(KIND)
def arange_between_symbols() -> Made:
    return lambda x: torch.arange(x.size(0), x.size(0) + x.size(1), 2.0), flat


@everyday(KIND)
def arange_of_a_half_size() -> Made:
    return lambda x: torch.arange(0, x.size(1) / 2), flat


@everyday(KIND)
def arange_by_a_symbol() -> Made:
    return lambda x: torch.arange(0.0, 1.0, 1 / x.size(1)), flat


@everyday(KIND)
def linspace_of_a_size() -> Made:
    return lambda x: torch.linspace(0, x.size(0), x.size(1)), flat


@everyday(KIND)
def topk_of_picked() -> Made:
    def run(x: Tensor, m: Tensor) -> Tensor:
        found = x[m].flatten()
        torch._check(found.size(0) >= 2)
        return found.topk(2).values

    return run, lambda b, n: (torch.randn(b, n, 8), torch.ones(b, n, dtype=torch.bool))


@everyday(KIND)
def sorted_picked() -> Made:
    return lambda x, m: torch.sort(x[m], dim=0, descending=True), _masked


@everyday(KIND)
def picked_with_scores() -> Made:
    def run(boxes: Tensor, scores: Tensor) -> Any:
        keep = scores > 0
        found, kept = boxes[keep], scores[keep]
        order = kept.argsort(descending=True)
        sides = found[order].unbind(-1)
        return (sides[2] - sides[0]) * (sides[3] - sides[1]), kept[order]

    return run, lambda b, n: (torch.randn(b * n, 4), torch.randn(b * n))


@everyday(KIND)
def one_hot_of_known_classes() -> Made:
    return lambda x: F.one_hot(x, 5).float().mean(0), lambda b, n: (torch.randint(5, (b, n)),)


@everyday(KIND)
def experts_by_index() -> Made:
    experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def run(x: Tensor, which: Tensor) -> Tensor:
        result = torch.zeros_like(x)
        for number, expert in enumerate(experts):
            found = torch.where(which == number)[0]
            result.index_add_(0, found, expert(x[found]))
        return result

    return torch.no_grad()(run), lambda b, n: (torch.randn(b * n, 8), torch.randint(3, (b * n,)))


@everyday(KIND)
def split_where_data_say() -> Made:
    def run(x: Tensor, m: Tensor) -> Any:
        return x[m].mean(), x[~m].mean()

    return run, _masked


@everyday(KIND)
def picked_times_weights_of_rows() -> Made:
    return lambda x, m: x[m] * x.mean((0, 1)) + x.mean(), _masked


@everyday(KIND)
def picked_stacked() -> Made:
    return lambda x, y, m: torch.stack([x[m], y[m]]).sum(0), _two_masked


@everyday(KIND)
def mask_times_its_transpose() -> Made:
    def run(x: Tensor, m: Tensor) -> Tensor:
        return x[m] @ x[m].T

    return run, _masked


@everyday(KIND)
def items_of_lengths() -> Made:
    def run(x: Tensor, lengths: Tensor) -> Tensor:
        longest = lengths.max()
        mask = torch.arange(x.size(1)) < lengths[:, None]
        return (x * mask[..., None]).sum(1) / longest

    return run, lambda b, n: (*rows(b, n), torch.randint(1, n, (b,)))
