"""Cases of the poison harness that write: by index, into slices, and to views that share memory."""

from __future__ import annotations

from typing import Any

import torch

from tests.meta_fns.padding.cases import WEIGHT, Case, aten, case
from tests.meta_fns.padding.poison import Arg, bools, floats, ints

__all__ = ["WRITING"]

ONE = Arg((1,), torch.int64, 0, 1, static=(0,))
Tensors = tuple[torch.Tensor, ...]


def _assigned(x: torch.Tensor, key: Any, value: Any) -> torch.Tensor:
    x[key] = value
    return x


def _views(x: torch.Tensor) -> Tensors:
    y = x * 2
    z, w = y[:, 1:], y.t()
    z.add_(1)
    w[0].mul_(3)
    return y.sum(1), z.sum(0), w.cumsum(0)


def _shifted(x: torch.Tensor) -> torch.Tensor:
    """As encoder-decoders shift labels."""
    made = torch.zeros_like(x)
    made[..., 1:] = x[..., :-1].clone()
    made[..., 0] = 7
    return made.masked_fill_(made == 1.0, 0)


def _cached(cache: torch.Tensor, x: torch.Tensor) -> Tensors:
    cache = cache.clone()
    cache[:, x.shape[1] : x.shape[1] * 2] = x
    return cache.sum(1), cache


def _strided(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[:, ::2] = 0
    y[:, 1::2] += 1
    return y


def _through_views(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.unsqueeze(0).transpose(1, 2).permute(0, 1, 2)[0, :, 1:] = x[:-1].clone().t() * 5
    return y.cumsum(0)


def _views_of_views(x: torch.Tensor) -> Tensors:
    y = x * 1
    a = y[1:]
    b = a[1:]
    b.fill_(2)
    a.mul_(2)
    y[-1] = 9
    return a.sum(), b.sum(), y.sum(0)


def _turned(x: torch.Tensor) -> Tensors:
    y = (x * 2).transpose_(0, 1)
    y[0].add_(1)
    return y.sum(0), (x * 3).t_().cumsum(0)


WRITING: tuple[Case, ...] = (
    case(
        "index_copy",
        lambda x, i, y: aten.index_copy(x, 1, i, y).sum(0),
        floats(2, 5, 3),
        ints(1, high=1),
        floats(2, 1, 3),
    ),
    case(
        "index_copy of one",
        lambda x, y: aten.index_copy(x, 1, torch.tensor([1]), y) * 2,
        floats(2, 5, 3),
        floats(2, 1, 3, static=(1,)),
    ),
    case(
        "index_copy into a table",
        lambda i, y: aten.index_copy(WEIGHT.view(8, 3), 0, i % 8, y),
        ints(4, high=1),
        floats(4, 3),
    ),
    case(
        "index_copy at a range",
        lambda x, y: aten.index_copy(x, 0, torch.arange(y.shape[0]), y).sum(0),
        floats(7, 3),
        floats(4, 3),
    ),
    case(
        "index_put at a range",
        lambda x, y: aten.index_put(x, [None, torch.arange(y.shape[1]) + 1], y).sum(1),
        floats(2, 8, 3),
        floats(2, 4, 3),
    ),
    case(
        "index_put from the end",
        lambda x, i, y: aten.index_put(x, [i], y).sum(0),
        floats(7, 3),
        ints(1, low=-1, high=0),
        floats(1, 3),
    ),
    case(
        "index_put of two",
        lambda x, y: aten.index_put(
            x, [torch.arange(y.shape[0])[:, None], torch.arange(y.shape[1])], y
        ).sum(1),
        floats(6, 7, 3),
        floats(3, 4, 3),
    ),
    case(
        "index_put that adds",
        lambda x, i, y: aten.index_put(x, [i], y, True).sum(0),
        floats(7, 3),
        ints(4, high=1),
        floats(4, 3),
    ),
    case(
        "index_put into a table",
        lambda i, y: aten.index_put(WEIGHT.view(8, 3).clone(), [i], y, True),
        ints(4, low=-8, high=8),
        floats(4, 3),
    ),
    case(
        "index_put of one row",
        lambda x, y: aten.index_put(x, [torch.tensor([1])], y).sum(0),
        floats(5, 3),
        floats(3),
    ),
    case(
        "slice_scatter",
        lambda x, y: aten.slice_scatter(x, y, 1, 1, 1 + y.shape[1]).sum(1),
        floats(2, 7),
        floats(2, 4),
    ),
    case(
        "slice_scatter behind a size",
        lambda x, y, z: aten.slice_scatter(x, y, 0, z.shape[0], z.shape[0] + y.shape[0]).cumsum(0),
        floats(9, 2),
        floats(3, 2),
        floats(4),
    ),
    case(
        "slice_scatter of a few",
        lambda x, y: aten.slice_scatter(x, y, 1, 0, 4, 2).sum(1),
        floats(3, 5),
        floats(3, 2, static=(1,)),
    ),
    case(
        "slice_scatter of all",
        lambda x, y: aten.slice_scatter(x, y, 1).sum(1),
        floats(3, 5),
        floats(3, 5),
    ),
    case(
        "slice_scatter at the end",
        lambda x, y: aten.slice_scatter(x, y, 0, -2).sum(0),
        floats(5, 3),
        floats(2, 3, static=(0,)),
    ),
    case(
        "select_scatter",
        lambda x, y: aten.select_scatter(x, y, 1, 0).sum(1),
        floats(3, 5, 2, static=(1,)),
        floats(3, 2),
    ),
    case(
        "select_scatter at the end",
        lambda x, y: aten.select_scatter(x, y, 0, -1).sum(0),
        floats(5, 2),
        floats(2),
    ),
    case(
        "index_copy, once more",
        lambda c, x: torch.index_copy(c, 0, torch.arange(x.shape[0]), x),
        floats(9, 3),
        floats(4, 3),
    ),
    case(
        "index_copy_",
        lambda c, x: c.clone().index_copy_(1, torch.arange(x.shape[1]), x),
        floats(3, 9),
        floats(3, 4),
    ),
    case(
        "index_copy, one position",
        lambda c, x, i: torch.index_copy(c, 1, i, x).sum(1),
        floats(3, 9, 2),
        floats(3, 1, 2, static=(1,)),
        ONE,
    ),
    case(
        "index_add",
        lambda c, i, x: c.index_add(0, i, x, alpha=2),
        floats(9, 3),
        ints(4, high=1),
        floats(4, 3),
    ),
    case(
        "index_add to a constant",
        lambda i, x: torch.zeros(5, 3).index_add(0, i, x.expand(-1, 3)),
        ints(4, high=5),
        floats(4, 1, static=(1,)),
    ),
    case(
        "index_reduce",
        lambda c, i, x: c.index_reduce(0, i, x, "amax"),
        floats(9, 3),
        ints(4, high=1),
        floats(4, 3),
    ),
    case(
        "index_fill",
        lambda c, i: c.index_fill(0, i, 2.0).sum(0),
        floats(9, 3),
        ints(4, low=-1, high=1),
    ),
    case(
        "index_fill of a tensor",
        lambda c, i: c.index_fill(0, i, c.sum()).sum(0),
        floats(9, 3),
        ints(4, low=-1, high=1),
    ),
    case(
        "scatter",
        lambda c, x: c.scatter(1, torch.argsort(x, dim=1, stable=True), x),
        floats(3, 9),
        floats(3, 4),
    ),
    case(
        "scatter of a number",
        lambda c, i: c.scatter(1, i, 2.0).sum(1),
        floats(3, 9),
        ints(3, 4, high=1),
    ),
    case(
        "scatter that reduces",
        lambda c, i, x: (c.scatter(1, i, x, reduce="add"), c.scatter(1, i, 2.0, reduce="multiply")),
        floats(3, 9),
        ints(3, 4, high=1),
        floats(3, 4),
    ),
    case(
        "scatter_add",
        lambda c, i, x: c.scatter_add(1, i, x),
        floats(3, 9),
        ints(3, 4, high=1),
        floats(3, 4),
    ),
    case(
        "scatter_add by less than there is",
        lambda c, i, x: c.scatter_add(1, i, x).sum(0),
        floats(5, 9),
        ints(3, 4, high=1),
        floats(4, 6),
    ),
    case(
        "scatter_reduce",
        lambda c, i, x: c.scatter_reduce(1, i, x, "amax"),
        floats(3, 9),
        ints(3, 4, high=1),
        floats(3, 4),
    ),
    case(
        "index_put",
        lambda c, x: aten.index_put(c, [torch.arange(x.shape[0])], x),
        floats(9, 3),
        floats(4, 3),
    ),
    case(
        "_unsafe_index_put",
        lambda c, x: aten._unsafe_index_put(c, [None, torch.arange(x.shape[1])], x),
        floats(3, 9),
        floats(3, 4),
    ),
    case(
        "index_put that adds, once more",
        lambda c, i, x: c.clone().index_put_((i,), x, accumulate=True),
        floats(9, 3),
        ints(4, low=-1, high=1),
        floats(4, 3),
    ),
    case(
        "index_put by a mask",
        lambda c, m: c.clone().index_put_((m,), torch.tensor(0.0)).sum(0),
        floats(9, 3),
        bools(9, 3),
    ),
    case(
        "index_put of rows",
        lambda c, m: _assigned(c.clone(), m, 0.0).sum(0),
        floats(9, 3),
        bools(9),
    ),
    case(
        "slice_scatter, once more",
        lambda c, x: aten.slice_scatter(c, x, 1, 0, x.shape[1]),
        floats(3, 9),
        floats(3, 4),
    ),
    case(
        "slice_scatter behind",
        lambda c, x: aten.slice_scatter(c, x[:, :-1], 1, 1),
        floats(3, 4),
        floats(3, 4),
    ),
    case(
        "slice_scatter with a step",
        lambda c, x: aten.slice_scatter(c, x[:, ::2], 1, 0, None, 2),
        floats(3, 8),
        floats(3, 8),
    ),
    case(
        "slice_scatter at the end",
        lambda c, x: aten.slice_scatter(c, x, 1, c.shape[1] - x.shape[1]),
        floats(3, 9),
        floats(3, 4),
    ),
    case(
        "select_scatter, once more",
        lambda c, x: (aten.select_scatter(c, x, 1, -1), aten.select_scatter(c, x, 1, 0)),
        floats(3, 4),
        floats(3),
    ),
    case("views that share memory", _views, floats(5, 4)),
    case("labels shifted", _shifted, floats(3, 6)),
    case("a cache", _cached, floats(3, 12), floats(3, 4)),
    case("slices with a step", _strided, floats(3, 8)),
    case("through views", _through_views, floats(5, 4)),
    case("views of views", _views_of_views, floats(7, 3)),
    case("turned in place", _turned, floats(3, 4)),
    case(
        "a prefix assigned",
        lambda x, y: _assigned(x * 1, (slice(None), slice(0, 2)), y.sum()),
        floats(3, 4),
        floats(5),
    ),
    case(
        "a prefix of a size assigned",
        lambda x, y: _assigned(
            torch.zeros(x.shape[0], 12) + x.sum(), (slice(None), slice(0, y.shape[0])), 2.0
        ),
        floats(3, 4),
        floats(5),
    ),
    case(
        "the last assigned",
        lambda x, y: _assigned(x * 1, (slice(None), -1), y),
        floats(3, 4),
        floats(3),
    ),
)
