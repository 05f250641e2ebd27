"""Cases of the poison harness for medians, distances, windows, diagonals, cells and whole layers of
transformers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.meta_fns.padding.cases import Case, aten, case
from tests.meta_fns.padding.poison import Arg, bools, floats, ints

__all__ = ["ROWS_AND_WINDOWS"]

X = floats(3, 5)
POINTS = floats(5, 3, static=(1,))
OTHERS = floats(7, 3, static=(1,))
TOKENS = floats(2, 5, 8, static=(2,))
IMAGES = floats(2, 3, 6, 7, static=(1,))
TABLE = torch.linspace(-1, 1, 24).view(4, 6)
WEIGHTS = [torch.linspace(-1, 1, n).view(-1, 4) * 0.7 for n in (48, 48)]


def _some_nan(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 1.0, math.nan, x)


def _in_eval(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.uniform_(
            parameter, -0.5, 0.5, generator=torch.Generator().manual_seed(parameter.numel())
        )
    return module.eval()


HEADS = _in_eval(nn.MultiheadAttention(8, 2, batch_first=True))
LAYER = _in_eval(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True))


def _later(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)


def _but_the_first(mask: torch.Tensor) -> torch.Tensor:
    return mask & (torch.arange(mask.shape[1]) > 0)


def _gradient(fn: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def gradient(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad((fn(leaf) ** 2).sum(), leaf)[0]

    return gradient


def _diagonal_written(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.diagonal(1).mul_(2)
    y.fill_diagonal_(9.0)
    return y.sum(0)


def _unique_among(x: torch.Tensor, **options: Any) -> torch.Tensor:
    """Different elements, unless some are 7, as padding may be: 7 of them is an element, too."""
    different = torch.where(x < 4, torch.arange(x.shape[0]), x)
    return torch.isin(different, torch.arange(100, 160), assume_unique=True, **options)


def _cells(x: torch.Tensor, h: torch.Tensor) -> Any:
    w, v = WEIGHTS
    return (
        torch.gru_cell(x, h, w, v),
        torch.rnn_tanh_cell(x, h, w[:4], v[4:8]),
        torch.rnn_relu_cell(x, h, w[:4], v[4:8], torch.ones(4)),
    )


def _long_cells(x: torch.Tensor, h: torch.Tensor) -> Any:
    wide = torch.linspace(-1, 1, 64).view(16, 4)
    return torch.lstm_cell(x, [h, x], wide, wide * 0.5)


ROWS_AND_WINDOWS: tuple[Case, ...] = (
    case("median", lambda x: (x.median(1)[0], x.median(0, keepdim=True)[0], x.median()), X),
    case("median with NaN", lambda x: (_some_nan(x).median(1)[0], _some_nan(x).median()), X),
    case(
        "median without NaN", lambda x: (_some_nan(x).nanmedian(1)[0], _some_nan(x).nanmedian()), X
    ),
    case(
        "median of ints",
        lambda x: (x.median(1)[0], x.nanmedian(0)[0], x.flatten().median()),
        ints(3, 5, low=-3),
    ),
    case("median of nothing", lambda x: (x[1:].median(), x[1:].float().median()), ints(5)),
    case(
        "extremes",
        lambda x: (
            *torch.aminmax(x, dim=1),
            *torch.aminmax(x),
            *torch.aminmax(_some_nan(x), dim=0),
        ),
        X,
    ),
    case(
        "count_nonzero",
        lambda x: (torch.count_nonzero(x, 1), torch.count_nonzero(x)),
        ints(3, 5, low=-1),
    ),
    case(
        "position in all",
        lambda x: (x.argmax(), x.transpose(0, 1).argmin(), x.argmax(keepdim=True)),
        X,
    ),
    case("turn of all", lambda x: (x.roll(4), x.transpose(0, 1).roll(-3)), X),
    case(
        "turn of all of a tensor without padding",
        lambda x: (TABLE.roll(4) + x.sum(), x.expand(2, *x.shape).sum((1, 2)).roll(1)),
        X,
    ),
    case("turn of all by a size", lambda x: (x.roll(x.shape[1]), TABLE.roll(x.shape[1] - 1)), X),
    case(
        "old norms",
        lambda x: (
            aten.norm.ScalarOpt_dim(x, 3, [1]),
            aten.norm.Scalar(x),
            aten.norm.ScalarOpt_dim(x, -1, [0], True),
        ),
        X,
        tolerance=1e-4,
    ),
    case(
        "old norm of a dtype",
        lambda x: aten.norm.ScalarOpt_dim_dtype(x, None, [1], False, dtype=torch.float64),
        X,
    ),
    case("dot", lambda x, y: (torch.dot(x, y), torch.vdot(y, x)), floats(5), floats(5)),
    case("trace", torch.trace, X),
    case(
        "diag_embed", lambda x: (torch.diag_embed(x), torch.diag_embed(x, dim1=0, dim2=2).sum(0)), X
    ),
    case("diag_embed, static", lambda x: torch.diag_embed(x, offset=-1, dim1=1, dim2=0), POINTS),
    case(
        "diagonal of sizes",
        lambda x: (x.diagonal(), x.diagonal(1).cumsum(0), x.diagonal(-2).sum()),
        floats(4, 6),
    ),
    case("diagonal written", _diagonal_written, floats(4, 6)),
    case(
        "diagonal put back",
        lambda x, y: torch.diagonal_scatter(x, y.diagonal()).cumsum(0),
        floats(4, 6),
        floats(4, 6),
    ),
    case(
        "gradient of a diagonal",
        _gradient(lambda x: x.diagonal(0, 0, 2).cumsum(1)),
        floats(4, 3, 6),
    ),
    case("distances", lambda x, y: torch.cdist(x, y).softmax(1), POINTS, OTHERS, tolerance=1e-4),
    case(
        "distances of padded points",
        lambda x, y: torch.cdist(x, y, p=1.0),
        floats(5, 3),
        floats(7, 3),
    ),
    case("windows", lambda x: (x.unfold(1, 3, 1), x.unfold(0, 2, 2).sum(-1)), floats(4, 7)),
    case("windows of merged", lambda x: x.flatten().unfold(0, 4, 3) * 1, floats(4, 7)),
    case(
        "columns", lambda x: F.unfold(x, (2, 3), dilation=(1, 2), padding=1, stride=(2, 1)), IMAGES
    ),
    case("columns that are added", lambda x: F.unfold(x, 2, stride=2).mean(-1), IMAGES),
    case(
        "max_pool1d",
        lambda x: (F.max_pool1d(x, 3, 2, 1), F.max_pool1d(x, 2, ceil_mode=True)),
        floats(2, 3, 7),
    ),
    case(
        "adaptive maximum",
        lambda x: (F.adaptive_max_pool2d(x, 1), F.adaptive_max_pool1d(x.flatten(2), 1)),
        IMAGES,
    ),
    case(
        "adaptive maxima of rows",
        lambda x: (F.adaptive_max_pool2d(x, (2, 3)), F.adaptive_max_pool3d(x[:, None], (2, 2, 3))),
        floats(4, 3, 6, 7, static=(1, 2, 3)),
    ),
    case(
        "linspace",
        lambda x: (
            torch.linspace(-1, 1, x.shape[1]),
            torch.linspace(0, x.shape[1] - 1, x.shape[0]),
        ),
        X,
    ),
    case(
        "linspace, double",
        lambda x: torch.linspace(3, -7, x.shape[0], dtype=torch.float64) + x.sum() * 0,
        X,
    ),
    case(
        "linspace of tensors",
        lambda x, y: (
            aten.linspace.Scalar_Tensor(0, y, 5) + x.sum(),
            aten.linspace.Tensor_Scalar(y, 3, 5) + x.sum(),
            aten.linspace.Tensor_Tensor(y, y + 1, 5) + x.sum(),
        ),
        X,
        floats(),
    ),
    case(
        "memory with strides",
        lambda x: (
            x.new_empty_strided((x.shape[0], x.shape[1]), (1, x.shape[0])).fill_(1.0) + x,
            torch.empty_strided((x.shape[0], 3), (3, 1)).fill_(2.0).sum(0),
        ),
        X,
    ),
    case(
        "places among boundaries",
        lambda x: (
            torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
            torch.searchsorted(torch.arange(4.0), x),
        ),
        X,
    ),
    case("among others", lambda x: torch.isin(x, torch.tensor([1, 3])), ints(3, 5)),
    case("unique ones among many", lambda x: _unique_among(x), ints(13)),
    case("unique ones not among many", lambda x: _unique_among(x, invert=True), ints(13)),
    case(
        "unique ones in two dimensions among many",
        lambda x: torch.isin(
            torch.where(x < 4, torch.arange(x.shape[0] * x.shape[1]).view(x.shape), x),
            torch.arange(200, 260),
            assume_unique=True,
        ),
        ints(3, 5),
    ),
    case(
        "places in rows that are sorted by a sorter",
        lambda x, y, i: torch.searchsorted(x, y, sorter=i),
        floats(3, 5, static=(1,)),
        floats(3, 4),
        ints(3, 5),
    ),
    case(
        "sampled",
        lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False),
        floats(4, 2, 3, 5, static=(2, 3)),
        floats(4, 3, 6, 2, static=(3,)),
        tolerance=1e-4,
    ),
    case(
        "sampled in space",
        lambda x, g: F.grid_sample(x, g.tanh(), align_corners=True),
        floats(4, 2, 3, 5, 3, static=(2, 3, 4)),
        floats(4, 3, 6, 2, 3, static=(4,)),
        tolerance=1e-4,
    ),
    case("cells", _cells, floats(3, 4, static=(1,)), floats(3, 4, static=(1,)), tolerance=1e-4),
    case(
        "cells of an LSTM",
        _long_cells,
        floats(3, 4, static=(1,)),
        floats(3, 4, static=(1,)),
        tolerance=1e-4,
    ),
    case(
        "instance norm",
        lambda x: F.instance_norm(x, weight=torch.arange(3.0)),
        floats(2, 3, 9),
        tolerance=1e-3,
    ),
    case(
        "norm of a batch",
        lambda x: F.batch_norm(x, None, None, training=True),
        floats(4, 3, 9),
        tolerance=1e-3,
    ),
    case("instance norm, half", lambda x: F.instance_norm(x), Arg((2, 3, 9), torch.bfloat16)),
    case("heads", lambda x: HEADS(x, x, x), TOKENS, tolerance=1e-4),
    case(
        "heads, causal",
        lambda x: HEADS(x, x, x, attn_mask=_later(x), need_weights=False)[0],
        TOKENS,
        tolerance=1e-4,
    ),
    case(
        "heads without some keys",
        lambda x, b: HEADS(x, x, x, key_padding_mask=_but_the_first(b), average_attn_weights=False),
        TOKENS,
        bools(2, 5),
        tolerance=1e-4,
    ),
    case("encoder layer", lambda x: LAYER(x).mean(1), TOKENS, tolerance=1e-4),
    case(
        "encoder layer, masked",
        lambda x, b: LAYER(x, src_mask=_later(x), src_key_padding_mask=_but_the_first(b)),
        TOKENS,
        bools(2, 5),
        tolerance=1e-4,
    ),
)
