"""Cases of the poison harness that reorder, repeat, resample, normalise and compare padded
tensors.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from tests.meta_fns.padding.cases import WEIGHT, Case, aten, case
from tests.meta_fns.padding.poison import floats, ints

__all__ = ["REARRANGING"]

TABLE = WEIGHT[:18].view(1, 2, 3, 3)
CLASSES = ints(3, high=5)
ROWS = floats(3, 5, static=(1,))


def _to(mode: str, **options: Any) -> Any:
    def resampled(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=like.shape, mode=mode, **options)

    return resampled


def _from_table(like: torch.Tensor) -> torch.Tensor:
    """As vision transformers resample their positions."""
    return F.interpolate(TABLE * 1, size=like.shape, mode="bicubic").flatten(2) + like.sum()


def _of_groups(x: torch.Tensor) -> torch.Tensor:
    """As mixtures of experts multiply."""
    ends = (torch.arange(1, 3) * x.shape[0] // 2).to(torch.int32)
    return aten._grouped_mm(x, torch.linspace(-1, 1, 128).view(2, 8, 8), ends)


def _recurrent(kind: str, nonlinearity: str | None = None) -> Any:
    options = {} if nonlinearity is None else {"nonlinearity": nonlinearity}
    layer = getattr(torch.nn, kind)(3, 4, batch_first=True, **options).eval()

    def run(x: torch.Tensor) -> Any:
        out, last = layer(x)
        return (out, out.sum(1)) if kind == "LSTM" else (out, last)

    return run


def _stable(x: torch.Tensor, dim: int, **options: Any) -> Any:
    return torch.sort(x, dim=dim, stable=True, **options)


IMAGES = floats(2, 3, 4, 5)
LIKE = floats(6, 7)

REARRANGING: tuple[Case, ...] = (
    case(
        "sort",
        lambda x: (x.sort(1)[0], x.sort(0, descending=True)[0], torch.sort(x, stable=True, dim=1)),
        floats(3, 5),
    ),
    case(
        "sort with NaN",
        lambda x: (_stable(x.log(), 1), _stable(x.log(), 1, descending=True)),
        floats(3, 5),
    ),
    case(
        "sort of ints",
        lambda x: (_stable(x, 1), _stable(x, 1, descending=True)),
        ints(3, 5, low=-3),
    ),
    case("sort of many equals", lambda x: _stable(x, 1), ints(2, 20, high=3)),
    case("sort of merged", lambda x: _stable(x.flatten(0, 1), 0), floats(3, 4)),
    case(
        "topk",
        lambda x: [x.topk(2, 1)[0], x.topk(2, 1, largest=False)[0], x.topk(x.shape[1] - 1, 1)[0]],
        floats(3, 5),
    ),
    case("topk of equals", lambda x: (x * 0 - math.inf).topk(2, 1)[0], ints(3, 5)),
    case(
        "topk of rows", lambda x: x.view(-1, 4).topk(2, 1), ints(3, 4, high=3, dtype=torch.float32)
    ),
    case("topk, static", lambda x: x.topk(2, 1), ROWS),
    case("histc", lambda x: torch.histc(x.float(), 4, 0, 3), ints(3, 5)),
    case(
        "flip",
        lambda x: (x.flip(1).cumsum(1).flip(1), x.flip(0, 1).sum(0), x.flip(0)[0]),
        floats(3, 5),
    ),
    case("flip of a scalar", lambda x: x.sum().flip(0) * 2, floats(3, 5)),
    case(
        "roll",
        lambda x: (x.roll(1, 1), x.roll((-2, 3), (0, 1)).sum(0), x.roll(x.shape[0] // 2, 0)),
        floats(3, 5),
    ),
    case(
        "roll of one dimension twice",
        lambda x: (x.roll((1, 2), (1, 1)), x.roll((1, -1, x.shape[0]), (-1, 0, 1))),
        floats(3, 5),
    ),
    case(
        "repeat",
        lambda x, y: (x.repeat(2, 1, 3), x.repeat(y.shape[0], 2).sum(0), x.repeat(1, 2).cumsum(1)),
        floats(3, 5),
        floats(4),
    ),
    case(
        "pixel_shuffle",
        lambda x: (F.pixel_shuffle(x, 2) * 2).sum(3),
        floats(2, 4, 3, 5, static=(1,)),
    ),
    case(
        "pixel_unshuffle",
        lambda x: (F.pixel_unshuffle(x, 2) * 2).sum(3),
        floats(2, 3, 6, 8, static=(1,)),
    ),
    case(
        "channel_shuffle",
        lambda x: (F.channel_shuffle(x, 2) * 2).sum(3),
        floats(2, 4, 3, 5, static=(1,)),
    ),
    case(
        "a pool to one pixel, channels last",
        lambda x: (
            F.adaptive_avg_pool2d(x.contiguous(memory_format=torch.channels_last), 1).flatten(1) * 2
        ),
        floats(3, 4, 3, 5, static=(1, 2, 3)),
    ),
    case("diagonal", lambda x: (x @ x.t()).diagonal().cumsum(0), floats(4, 5)),
    case(
        "eye",
        lambda x: (torch.eye(x.shape[0]).sum(0) + x, torch.eye(x.shape[0], 4).sum(0)),
        floats(5),
    ),
    case("one_hot", lambda i: F.one_hot(i, 5).sum(0), ints(3, 4)),
    case("reflection_pad", lambda x: F.pad(x, (2, 1), mode="reflect").sum(2), floats(2, 3, 5)),
    case("reflection_pad2d", lambda x: F.pad(x, (2, 1, 1, 0), mode="reflect"), floats(2, 3, 5, 4)),
    case(
        "reflection_pad3d",
        lambda x: F.pad(x, (2, 1, 1, 0, 1, 1), mode="reflect"),
        floats(1, 2, 3, 5, 4),
    ),
    case("replication_pad", lambda x: F.pad(x, (2, 2), mode="replicate"), floats(2, 3, 5)),
    case(
        "replication_pad2d",
        lambda x: F.pad(x, (2, 2, 0, 1), mode="replicate").sum(3),
        floats(2, 3, 5, 4),
    ),
    case(
        "replication_pad3d",
        lambda x: F.pad(x, (2, 2, 0, 1, 1, 1), mode="replicate"),
        floats(1, 2, 3, 5, 2),
    ),
    # --- views whose sizes are made of parts of others
    case("view in halves", lambda x: x.view(2, -1).sum(1), floats(8, 4, static=(1,))),
    case(
        "view in pairs",
        lambda x: (x.view(-1, 2) * 1, x.view(x.shape[0], -1, 2).sum(2)),
        floats(3, 8),
    ),
    case(
        "view of other sizes", lambda x: x.reshape(x.shape[1], x.shape[0]).cumsum(1), floats(3, 8)
    ),
    case("view as another", lambda x, y: (x.view(y.shape) * y).sum(1), floats(4, 6), floats(4, 6)),
    case(
        "cat of nothing yet", lambda x: torch.cat([torch.zeros(0), x * 2], 1).sum(0), floats(3, 4)
    ),
    case(
        "complex",
        lambda x: torch.view_as_real(torch.view_as_complex(x) * 2),
        floats(3, 5, 2, static=(2,)),
    ),
    case("polar", lambda x, y: torch.view_as_real(torch.polar(x, y)), floats(3, 5), floats(3, 5)),
    case(
        "complex of two",
        lambda x, y: torch.view_as_real(torch.complex(x, y)),
        floats(3, 5),
        floats(3, 5),
    ),
    # --- resampling
    case("nearest", _to("nearest"), IMAGES, LIKE),
    case("nearest by a factor", lambda x: F.interpolate(x, scale_factor=1.7), floats(2, 3, 4)),
    case("nearest exact", _to("nearest-exact"), IMAGES, LIKE),
    case(
        "nearest exact of one",
        lambda x: F.interpolate(x, size=7, mode="nearest-exact"),
        floats(2, 3, 4),
    ),
    case("nearest of volumes", lambda x: F.interpolate(x, scale_factor=2), floats(1, 2, 3, 4, 5)),
    case(
        "nearest exact of volumes",
        lambda x: F.interpolate(x, 7, mode="nearest-exact"),
        floats(1, 2, 3, 4, 5),
    ),
    case("linear", lambda x: F.interpolate(x, scale_factor=2, mode="linear"), floats(2, 3, 4)),
    case("bilinear", _to("bilinear"), IMAGES, LIKE),
    case("bilinear of corners", _to("bilinear", align_corners=True), IMAGES, LIKE),
    case("bicubic", _to("bicubic"), IMAGES, LIKE, tolerance=1e-4),
    case("bicubic of corners", _to("bicubic", align_corners=True), IMAGES, LIKE, tolerance=1e-4),
    case("bicubic from a table", _from_table, LIKE, tolerance=1e-4),
    case(
        "trilinear",
        lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"),
        floats(1, 2, 3, 4, 5),
    ),
    case("adaptive averages", lambda x: F.adaptive_avg_pool2d(x, (2, 3)), floats(2, 3, 5, 7)),
    case(
        "adaptive averages of volumes", lambda x: F.adaptive_avg_pool3d(x, 2), floats(1, 2, 3, 5, 4)
    ),
    # --- statistics and losses
    case(
        "variance",
        lambda x: (x.var(1), x.var(), x.var((0, 1), keepdim=True), x.var(1, correction=3)),
        floats(3, 5),
    ),
    case(
        "deviation",
        lambda x: (x.std(1), torch.std_mean(x), torch.var_mean(x, 1, keepdim=True)),
        floats(3, 5),
    ),
    case(
        "group_norm of positions",
        lambda x: F.group_norm(x, 2, WEIGHT[:4], WEIGHT[:4]),
        floats(3, 4, 5, static=(1,)),
    ),
    case("group_norm of images", lambda x: F.group_norm(x, 2), floats(3, 4, 5, 7, static=(1,))),
    case(
        "vector norms",
        lambda x: [
            torch.linalg.vector_norm(x, n, dim=d)
            for n in (2, 0, 3.0, math.inf, -math.inf)
            for d in (1, None)
        ],
        floats(3, 5),
    ),
    case(
        "running extremes",
        lambda x: (torch.cummax(x, 1), torch.cummin(x, 0), x.logcumsumexp(1)),
        floats(3, 5),
    ),
    case("logsigmoid and prelu", lambda x: (F.logsigmoid(x), F.prelu(x, WEIGHT[:1])), floats(3, 5)),
    case("glu", lambda x: F.glu(x.view(-1, 6)), floats(3, 6, static=(1,))),
    case(
        "baddbmm",
        lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5),
        floats(2, 3, 5),
        floats(2, 3, 4),
        floats(2, 4, 5),
    ),
    *(
        case(f"recurrent, {each}", _recurrent(each), floats(2, 6, 3, static=(2,)))
        for each in ("GRU", "LSTM")
    ),
    *(
        case(f"recurrent, {each}", _recurrent("RNN", each), floats(2, 6, 3, static=(2,)))
        for each in ("tanh", "relu")
    ),
    case("product of groups", _of_groups, floats(9, 8, static=(1,))),
    case(
        "index of merged",
        lambda x, y: x.flatten(0, 1)[torch.arange(y.shape[0])].sum(0),
        floats(3, 5, 2),
        floats(4),
    ),
    case(
        "index_add to merged",
        lambda x, y: x.flatten(0, 1).index_add(0, torch.arange(y.shape[0]), y).view(x.shape).sum(1),
        floats(3, 5, 2),
        floats(4, 2),
    ),
    case(
        "losses",
        lambda x, y: (
            F.mse_loss(x, y),
            F.huber_loss(x, y, reduction="sum"),
            F.smooth_l1_loss(x, y, reduction="none"),
        ),
        floats(3, 5),
        floats(3, 5),
    ),
    case("soft margin", lambda x, y: F.soft_margin_loss(x, y), floats(3, 5), floats(3, 5)),
    case(
        "cross entropy of two",
        lambda x, y: F.binary_cross_entropy(x.sigmoid(), y),
        floats(3, 5),
        ints(3, 5, high=2, dtype=torch.float32),
    ),
    case(
        "cross entropy of logits",
        lambda x, y: F.binary_cross_entropy_with_logits(x, y, pos_weight=y[0], reduction="sum"),
        floats(3, 5),
        floats(3, 5),
    ),
    case(
        "cross entropy",
        lambda x, y: (
            F.cross_entropy(x, y, ignore_index=1),
            F.cross_entropy(x, y, WEIGHT[:5], reduction="sum"),
            F.cross_entropy(x, y, reduction="none"),
            F.cross_entropy(x, y, label_smoothing=0.1),
        ),
        ROWS,
        CLASSES,
    ),
    case(
        "cross entropy of tokens",
        lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten(), ignore_index=-100),
        floats(4, 6, 5, static=(2,)),
        ints(4, 6, high=5),
    ),
    case(
        "cross entropy of images",
        lambda x, y: F.cross_entropy(x, y, ignore_index=1),
        floats(3, 5, 4, 6, static=(1,)),
        ints(3, 4, 6, high=5),
    ),
)
