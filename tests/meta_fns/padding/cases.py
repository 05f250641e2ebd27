"""What the poison harness runs: for every overload with a padding rule, functions that call it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch
import torch.nn.functional as F
from torch._ops import OpOverload

from meta_fns.core.registry import resolve, rules
from meta_fns.padding.pointwise import pointwise
from tests.meta_fns.padding.poison import Arg, bools, floats, ints

aten = torch.ops.aten


@attrs.frozen
class Case:
    """A function to be padded: its arguments, and whether some size of it has to be padded."""

    name: str
    fn: Callable[..., Any]
    arguments: tuple[Arg, ...]
    tolerance: float = 2e-5


def case(name: str, fn: Callable[..., Any], *arguments: Arg, **options: Any) -> Case:
    """A case under a name."""
    return Case(name, fn, arguments, **options)


WEIGHT = torch.linspace(-1, 1, 24)


DIES_WITHOUT_HEADS = torch.torch_version.TorchVersion(torch.__version__) < (2, 13)
"""Whether attention without heads divides by zero on the CPU: torch 2.11 does (a SIGFPE), 2.13 does
not.
"""


def attend(q: Any, k: Any, causal: bool = False, mask: Any = None) -> Any:
    """By the composite op, which leaves empty tensors to other kernels: this one does not survive
    them.
    """
    if DIES_WITHOUT_HEADS and q.shape[1] == 0:
        raise RuntimeError("attention of no heads ends the process in this torch")
    return F.scaled_dot_product_attention(q, k, k + 1, attn_mask=mask, is_causal=causal)


HEADS = floats(2, 2, 5, 8, static=(3,))


CASES: tuple[Case, ...] = (
    case("mm", lambda a, b: aten.mm(a, b), floats(3, 4), floats(4, 5)),
    case("mm of zeros", lambda a, b: aten.mm(torch.zeros_like(a), b), floats(3, 4), floats(4, 5)),
    case("bmm", lambda a, b: aten.bmm(a, b), floats(2, 3, 4), floats(2, 4, 5)),
    case("addmm", lambda c, a, b: aten.addmm(c, a, b), floats(5), floats(3, 4), floats(4, 5)),
    case(
        "addmm of a matrix",
        lambda c, a, b: aten.addmm(c, a, b, beta=2),
        floats(3, 5),
        floats(3, 4),
        floats(4, 5),
    ),
    case(
        "views",
        lambda x: aten.alias(aten.detach(x)).transpose(0, 2).permute(1, 2, 0),
        floats(3, 4, 5),
    ),
    case("t", lambda x: aten.t(x), floats(3, 4)),
    case(
        "merge and split",
        lambda x: (x.view(x.shape[0] * x.shape[1], -1) * 2).view(x.shape),
        floats(3, 4, 5),
    ),
    case(
        "split heads",
        lambda x: x.view(x.shape[0], x.shape[1], 2, 3).transpose(1, 2),
        floats(3, 4, 6, static=(2,)),
    ),
    case("merge all", lambda x: aten._unsafe_view(x + 1, [x.numel()]), floats(3, 4, 2)),
    case("merge and sum", lambda x: x.reshape(-1).sum(), floats(3, 4)),
    case("merge and softmax", lambda x: x.reshape(x.shape[0], -1).softmax(-1), floats(3, 4, 5)),
    case("view_copy", lambda x: aten.view_copy(x, [-1]), floats(3, 4)),
    case(
        "_reshape_alias",
        lambda x: aten._reshape_alias(x, [x.shape[0] * x.shape[1]], [1]),
        floats(3, 4),
    ),
    case("reshape", lambda x: aten.reshape.default(x, [x.shape[0] * x.shape[1]]), floats(3, 4)),
    case("expand", lambda x, y: x.unsqueeze(1).expand(-1, y.shape[0], -1), floats(3, 4), floats(5)),
    case(
        "expand and sum",
        lambda x, y: (x.unsqueeze(1).expand(-1, y.shape[0], -1)).sum(1),
        floats(3, 4),
        floats(5),
    ),
    case(
        "squeeze",
        lambda x: (x.unsqueeze(1).squeeze(1), x.unsqueeze(0).squeeze((0,)) * 2),
        floats(3, 4),
    ),
    case("squeeze all", lambda x: aten.squeeze.default(x.unsqueeze(1)), floats(3, 4)),
    case("slice a prefix", lambda x: x[:, :2] * 1, floats(3, 4)),
    case("slice a tail", lambda x: x[:, 2:].sum(1), floats(3, 5)),
    case("slice all but the last", lambda x: x[:, :-1].sum(1), floats(3, 5)),
    case("slice the last", lambda x: x[:, -2:] * 1, floats(3, 5)),
    case("slice from a size", lambda x, y: x[y.shape[0] :].sum(0), floats(7, 3), floats(3)),
    case("slice to half", lambda x: x[: x.shape[0] // 2].sum(0), floats(8, 3)),
    case("slice with a step", lambda x: x[1::2].sum(0), floats(8, 3)),
    case("slice a table", lambda x: (WEIGHT[: x.shape[0]] + x).sum(), floats(5)),
    case("select", lambda x: x[:, 1] * 1, floats(3, 4)),
    case("select the last", lambda x: x[:, -1] * 1, floats(3, 4, 5)),
    case("select at a size", lambda x, y: x[y.shape[0] - 1] * 1, floats(7, 3), floats(3)),
    case(
        "split",
        lambda x: [each.sum(1) for each in torch.split(x.view(-1, 6, x.shape[2]), 4, 1)],
        floats(3, 6, 4, static=(1,)),
    ),
    case(
        "split_with_sizes",
        lambda x: aten.split_with_sizes(x.view(-1, 6), [2, 4], 1)[1].sum(0),
        floats(3, 6, static=(1,)),
    ),
    case(
        "unsafe_split",
        lambda x: aten.unsafe_split.Tensor(x.view(-1, 6), 2, 1)[1].sum(0),
        floats(3, 6, static=(1,)),
    ),
    case(
        "unsafe_split_with_sizes",
        lambda x: aten.unsafe_split_with_sizes(x.view(-1, 6), [2, 4], 1)[0] * 2,
        floats(3, 6, static=(1,)),
    ),
    case("unbind", lambda x: aten.unbind.int(x.view(-1, 3), 1)[2].sum(), floats(4, 3, static=(1,))),
    case("cat of padded", lambda a, b: torch.cat([a, b], 1).cumsum(1), floats(2, 3), floats(2, 4)),
    case(
        "cat of three",
        lambda a, b, c: torch.cat([a, b, c]).cumsum(0),
        floats(3),
        floats(4),
        floats(2),
    ),
    case(
        "cat with a constant",
        lambda a, b: torch.cat([a, WEIGHT[:2], b, WEIGHT[:3]]).cumsum(0),
        floats(3),
        floats(4),
    ),
    case("cat behind a constant", lambda a: torch.cat([WEIGHT[:2], a]).sum(), floats(3)),
    case("cat elsewhere", lambda a, b: torch.cat([a, b], -1).sum(0), floats(5, 3), floats(5, 4)),
    case(
        "cat of merged",
        lambda x, y: torch.cat([y, x.flatten(1), y], 1).cumsum(1),
        floats(2, 3, 4),
        floats(2, 2),
    ),
    case(
        "scan of merged",
        lambda x: (x.reshape(-1).cumsum(0), x.reshape(-1)[1:], x.reshape(-1)[-1]),
        floats(3, 4, 2),
    ),
    case(
        "argmax of merged",
        lambda x: (x.flatten(1).argmax(1), x.flatten(0, 1).max(0)),
        floats(2, 3, 4),
    ),
    case("stack", lambda a, b: torch.stack([a, b], 1).sum(0), floats(5, 3), floats(5, 3)),
    case("constant_pad_nd", lambda x: F.pad(x, (1, 2), value=3.0).sum(1), floats(3, 4)),
    case("constant_pad_nd of two", lambda x: F.pad(x, (1, 0, 2, 1)), floats(3, 4)),
    case(
        "constant_pad_nd that cuts off ends",
        lambda x: F.pad(x, (1, -2), value=1.0).exp().sum(1),
        floats(3, 7),
    ),
    case(
        "constant_pad_nd to a multiple",
        lambda x: F.pad(x, (0, -x.shape[1] % 8))[:, : x.shape[1]] * 2,
        floats(3, 7),
    ),
    case(
        "constant_pad_nd back from a multiple",
        lambda x, y: F.pad(x[:, : -(-y.shape[0] // 4) * 4], (0, -(-y.shape[0] % 4))).sum(1),
        floats(3, 24, static=(1,)),
        floats(9),
    ),
    case("constant_pad_nd that cuts", lambda x: F.pad(x, (-1, 2), value=1.0).sum(1), floats(3, 4)),
    case("embedding", lambda i: aten.embedding(WEIGHT.view(8, 3), i).sum(1), ints(3, 4, high=8)),
    case(
        "embedding of a padded table",
        lambda w, i: aten.embedding(w, i).sum(1),
        floats(5, 3),
        ints(3, 4, high=1),
    ),
    case(
        "index_select",
        lambda x, i: aten.index_select(x, 1, i).sum(1),
        floats(3, 5),
        ints(4, high=1),
    ),
    case("gather", lambda x, i: torch.gather(x, 1, i).sum(1), floats(3, 5), ints(3, 4, high=1)),
    case(
        "gather from a table",
        lambda i: torch.gather(WEIGHT.view(3, 8), 1, i).sum(1),
        ints(3, 4, high=8),
    ),
    case("index", lambda x, i, j: x[i, j].sum(), floats(4, 5), ints(3, high=1), ints(3, high=1)),
    case("index from the end", lambda x, i: x[:, i].sum(1), floats(4, 5), ints(3, low=-1, high=1)),
    case(
        "index apart",
        lambda x, i, j: x[i, :, j].sum(0),
        floats(4, 5, 3),
        ints(3, high=1),
        ints(3, high=1),
    ),
    case(
        "_unsafe_index",
        lambda x, i: aten._unsafe_index(x, [i]).sum(0),
        floats(4, 5),
        ints(3, high=1),
    ),
    case(
        "index by a range",
        lambda x: x[torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])],
        floats(3, 4),
    ),
    case("softmax", lambda x: aten._softmax(x, 1, False), floats(3, 4, 5)),
    case(
        "softmax, static",
        lambda x: aten._softmax(x.view(-1, 4), 1, False),
        floats(3, 4, static=(1,)),
    ),
    case("log_softmax", lambda x: aten._log_softmax(x, 1, False), floats(3, 4, 5)),
    case("_safe_softmax", lambda x: aten._safe_softmax(x, 1), floats(3, 4, 5)),
    case(
        "layer_norm",
        lambda x: aten.native_layer_norm(x, [4], WEIGHT[:4], None, 1e-5),
        floats(3, 5, 4),
    ),
    case(
        "rms_norm", lambda x: F.rms_norm(x.view(-1, 4), [4], WEIGHT[:4]), floats(3, 4, static=(1,))
    ),
    case(
        "_fused_rms_norm",
        lambda x: aten._fused_rms_norm(x.view(-1, 4), [4], WEIGHT[:4], 1e-5),
        floats(3, 4, static=(1,)),
    ),
    case(
        "batch_norm",
        lambda x: F.batch_norm(x.view(-1, 3, x.shape[2]), WEIGHT[:3], WEIGHT[20:23]),
        floats(4, 3, 5, static=(1,)),
    ),
    case("group_norm", lambda x: F.group_norm(x.view(-1, 4, 5), 2), floats(3, 4, 5, static=(1, 2))),
    case("conv1d", lambda x: F.conv1d(x, WEIGHT.view(2, 3, 4), padding=2), floats(2, 3, 9)),
    case(
        "conv1d, strided",
        lambda x: F.conv1d(x, WEIGHT.view(2, 3, 4), WEIGHT[:2], 2, 1),
        floats(2, 3, 9),
    ),
    case(
        "conv1d, dilated",
        lambda x: F.conv1d(x, WEIGHT[:18].view(2, 3, 3), None, 1, 2, 2),
        floats(2, 3, 9),
    ),
    case(
        "conv2d",
        lambda x: F.conv2d(x, WEIGHT.view(2, 2, 3, 2), padding=1).relu(),
        floats(2, 2, 6, 7),
    ),
    case(
        "conv_transpose1d",
        lambda x: F.conv_transpose1d(x, WEIGHT.view(3, 2, 4), WEIGHT[:2]),
        floats(2, 3, 9),
    ),
    case(
        "conv_transpose1d, strided, cropped, with more at the end",
        lambda x: F.conv_transpose1d(x, WEIGHT.view(3, 2, 4), None, 3, 2, 1),
        floats(2, 3, 9),
    ),
    case(
        "conv_transpose1d, dilated, in groups",
        lambda x: F.conv_transpose1d(x, WEIGHT[:12].view(4, 1, 3), None, 2, 1, 0, 2, 2),
        floats(2, 4, 9),
    ),
    case(
        "conv_transpose2d",
        lambda x: F.conv_transpose2d(x, WEIGHT.view(2, 2, 3, 2), None, 2, 1).relu().sum((2, 3)),
        floats(2, 2, 6, 7),
    ),
    case(
        "two convs",
        lambda x: F.conv1d(
            F.conv1d(x, WEIGHT[:9].view(3, 1, 3), WEIGHT[:3], 1, 1),
            WEIGHT[:9].view(1, 3, 3),
            None,
            2,
            1,
        ),
        floats(2, 1, 9),
    ),
    case(
        "max_pool2d of positions",
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
        floats(2, 2, 7, 9),
    ),
    case("max_pool2d, ceil", lambda x: F.max_pool2d(x, 2, 3, 0, 1, True, True), floats(2, 7, 9)),
    case(
        "max_pool2d of lows",
        lambda x: F.max_pool2d(x * 0 - math.inf, 2, return_indices=True),
        ints(2, 2, 7, 9),
    ),
    case("max_pool2d, dilated", lambda x: F.max_pool2d(x, 2, 1, 1, 2), floats(2, 2, 7, 9)),
    case(
        "avg_pool2d of positions",
        lambda x: (F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2)),
        floats(2, 2, 7, 9),
    ),
    case("avg_pool3d of positions", lambda x: F.avg_pool3d(x, 2, 1, 1), floats(2, 1, 5, 4, 6)),
    case(
        "max_pool2d",
        lambda x: F.max_pool2d(x.view(-1, 2, 4, 4), 2),
        floats(3, 2, 4, 4, static=(1, 2, 3)),
    ),
    case("avg_pool2d", lambda x: F.avg_pool2d(x.view(-1, 4, 4), 2), floats(3, 4, 4, static=(1, 2))),
    case(
        "avg_pool3d",
        lambda x: F.avg_pool3d(x.view(-1, 1, 4, 4, 4), 2),
        floats(2, 1, 4, 4, 4, static=(1, 2, 3, 4)),
    ),
    case(
        "adaptive_avg_pool2d",
        lambda x: aten._adaptive_avg_pool2d(x.view(-1, 2, 4, 4), [2, 2]),
        floats(3, 2, 4, 4, static=(1, 2, 3)),
    ),
    case(
        "adaptive_avg_pool3d",
        lambda x: aten._adaptive_avg_pool3d(x.view(-1, 1, 4, 4, 4), [2] * 3),
        floats(2, 1, 4, 4, 4, static=(1, 2, 3, 4)),
    ),
    case(
        "attention to merged keys",
        lambda x: attend(*[x.flatten(2, 3) * n for n in (1, 2)]),
        floats(2, 2, 3, 4, 8, static=(4,)),
    ),
    case("attention, causal", lambda x: attend(x, x * 2, causal=True), HEADS),
    case("attention", lambda x: attend(x, x * 2), HEADS),
    case(
        "attention to others",
        lambda q, k: attend(q, k),
        floats(2, 2, 3, 8, static=(0, 1, 3)),
        floats(2, 2, 5, 8, static=(0, 1, 3)),
    ),
    case(
        "causal attention to more keys",
        lambda q, k: attend(q, torch.cat([q, k], 2), causal=True),
        floats(2, 2, 3, 8, static=(0, 1, 3)),
        floats(2, 2, 5, 8, static=(0, 1, 3)),
    ),
    case("attention, mask", lambda x: attend(x, x * 2, mask=(x @ x.transpose(2, 3))), HEADS),
    case(
        "attention, mask of a row",
        lambda x: attend(x, x * 2, mask=x[:, :1, :1, :].sum(3, keepdim=True)),
        HEADS,
    ),
    case(
        "attention, mask of two dimensions",
        lambda x: attend(x, x * 2, mask=(x @ x.mT).sum((0, 1))),
        HEADS,
    ),
    case(
        "sum",
        lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), x.sum([])),
        floats(3, 4, 5),
    ),
    case("sum of ints", lambda x: (x.sum(), x.sum(1), x.bool().sum(0)), ints(3, 4)),
    case("nansum", lambda x: x.nansum(1), floats(3, 4)),
    case("prod", lambda x: (x.prod(), x.prod(1), x.prod(0, keepdim=True)), floats(3, 4)),
    case("mean", lambda x: (x.mean(), x.mean(1), x.mean((0, 2), keepdim=True)), floats(3, 4, 5)),
    case("mean, half", lambda x: x.mean(1), floats(3, 4, 5, dtype=torch.bfloat16), tolerance=1e-2),
    case("mean over a constant", lambda x: x.view(-1, 4).mean(1), floats(3, 4, static=(1,))),
    case("all", lambda x: (x.all(), x.all(1), aten.all.dims(x, [0, 1])), bools(3, 4)),
    case("any", lambda x: (x.any(), x.any(1), aten.any.dims(x, [0, 1])), bools(3, 4)),
    case("max", lambda x: (x.max(), x.amax(1), x.max(1)), floats(3, 4)),
    case("max of ints", lambda x: (x.max(), x.amax(1), x.max(1)), ints(3, 4, low=-9, high=-1)),
    case("min", lambda x: (x.min(), x.amin((0, 1)), x.min(1, keepdim=True)), floats(3, 4)),
    case("argmax", lambda x: (x.argmax(1), x.argmax(0, keepdim=True)), floats(3, 4)),
    case("argmax, static dimension", lambda x: x.view(-1, 4).argmax(1), floats(3, 4, static=(1,))),
    case("argmin", lambda x: x.argmin(1), floats(3, 4)),
    case("argmax of equals", lambda x: (x * 0 - math.inf).argmax(1), ints(3, 4)),
    case("logsumexp", lambda x: (aten.logsumexp(x, [1]), aten.logsumexp(x, [0, 1])), floats(3, 4)),
    case("count_nonzero", lambda x: aten.count_nonzero.dim_IntList(x, [1]), ints(3, 4)),
    case(
        "var",
        lambda x: (x.view(-1, 4).var(1), torch.std_mean(x.view(-1, 4), 1)),
        floats(3, 4, static=(1,)),
    ),
    case(
        "var_mean and std",
        lambda x: (x.view(-1, 4).std(1), torch.var_mean(x.view(-1, 4), 1)),
        floats(3, 4, static=(1,)),
    ),
    case("cumsum", lambda x: (x.cumsum(1), x.cumsum(0)), floats(3, 4)),
    case("cumprod", lambda x: x.cumprod(1), floats(3, 4)),
    case("tril and triu", lambda x: (x.tril(), x.triu(1)), floats(3, 4)),
    case(
        "arange",
        lambda x: (torch.arange(x.shape[0]) + torch.arange(2, x.shape[0] + 2)) * 2,
        floats(4),
    ),
    case("arange with a step", lambda x: torch.arange(1, 2 * x.shape[0] + 1, 2).sum(), floats(4)),
    case(
        "arange from a size",
        lambda x, y: torch.arange(x.shape[0], x.shape[0] + y.shape[0]).cumsum(0),
        floats(4),
        floats(3),
    ),
    case(
        "zeros and ones", lambda x: (torch.zeros(x.shape[0], 2) + torch.ones(2)).sum(0), floats(4)
    ),
    case(
        "full",
        lambda x: (torch.full((x.shape[0],), 2.5).sum(), torch.full_like(x, 3.0).sum()),
        floats(4),
    ),
    case("like", lambda x: (torch.zeros_like(x), torch.ones_like(x).sum()), floats(4)),
    case(
        "empty",
        lambda x: torch.empty(x.shape[0]).copy_(x) + torch.empty_like(x).copy_(x),
        floats(4),
    ),
    case(
        "new",
        lambda x: (
            x.new_zeros(x.shape[0]),
            x.new_ones(x.shape).sum(),
            x.new_full(x.shape, 2.0).sum(),
        ),
        floats(4),
    ),
    case(
        "new_empty",
        lambda x: x.new_empty(x.shape).fill_(2.0) + x.new_empty(x.shape).zero_(),
        floats(4),
    ),
    case("scalar_tensor", lambda x: x + aten.scalar_tensor(3.0), floats(4)),
    case("scalar_tensor of a size", lambda x: x + aten.scalar_tensor(x.shape[0]), floats(4)),
    case(
        "a size as a number",
        lambda x: (x * x.shape[0], x / x.shape[1], x + x.shape[0], x < x.shape[1]),
        floats(3, 4),
    ),
    case(
        "_to_copy", lambda x: (x.to(torch.float64), x.to(torch.int32), x.to(torch.bool)), ints(3, 4)
    ),
    case("clone", lambda x: x.transpose(0, 1).contiguous() + x.t().clone(), floats(3, 4)),
    case(
        "copy and fill",
        lambda x, y: (aten.copy(x, y), aten.fill(x, 2.0), aten.fill(x, y.sum()), aten.zero(x)),
        floats(3, 4),
        floats(4),
    ),
    case("in place", lambda x: x.clone().mul_(2).add_(x).sigmoid_().sum(0), floats(3, 4)),
    case(
        "integer division",
        lambda x, y: (x // y, x % y, torch.fmod(x, y)),
        ints(3, 4, high=50),
        ints(3, 4, low=1),
    ),
    case(
        "division, rounded",
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        ints(3, 4, high=50),
        ints(4, low=1),
    ),
    case(
        "division by a number",
        lambda x: (torch.div(x, 3, rounding_mode="floor"), x // 2),
        ints(3, 4, high=50),
    ),
    case(
        "masked_fill",
        lambda x, m: (x.masked_fill(m, -math.inf).softmax(1), x.masked_fill(m, x.new_ones(()))),
        floats(3, 4),
        bools(3, 4),
    ),
    case(
        "where",
        lambda x, m: (torch.where(m, x, 0.0).sum(1), torch.where(m, x, x * 2)),
        floats(3, 4),
        bools(3, 4),
    ),
    case(
        "clamp",
        lambda x, y: (x.clamp(-1, 1), torch.clamp(x, min=y), torch.clip(x, 0)),
        floats(3, 4),
        floats(4),
    ),
    case(
        "fills",
        lambda x: (torch.zeros_like(x).exp() * torch.ones_like(x)).cos().sum(1),
        floats(3, 4),
    ),
    case(
        "masks",
        lambda x, m: (m & (x > 0)).any(1) | (m & torch.zeros_like(m)).any(1),
        floats(3, 4),
        bools(3, 4),
    ),
)
"""Everything but elementwise ops, and those of them that need care."""


def elementwise() -> Iterator[Case]:
    """One case for each elementwise overload, its arguments made from its schema."""
    for rule in rules():
        if rule.padding is pointwise and rule.overload.startswith("aten."):
            yield from _elementwise(resolve(rule.overload))


def _elementwise(op: OpOverload) -> Iterator[Case]:
    shapes = ((3, 4), (4,), (3, 1))
    for make in (_float, _positive, _int, _bool):
        arguments: list[Any] = []
        tensors: list[Arg] = []
        for argument in op._schema.arguments:
            kind = str(argument.type)
            if kind == "Tensor":
                arguments.append(None)
                tensors.append(make(shapes[len(tensors) % 3]))
            elif argument.has_default_value() or argument.kwarg_only:
                break
            else:
                number: float = 2 if make is _int or make is _bool or kind == "int" else 0.25
                arguments.append([number] if "[]" in kind else number)
        required = {
            a.name: a for a in op._schema.arguments if a.kwarg_only and not a.has_default_value()
        }
        options = {
            name: "floor" if "str" in str(argument.type) else 0.5
            for name, argument in required.items()
        }

        def call(
            *given: Any, arguments: list[Any] = arguments, options: dict[str, Any] = options
        ) -> Any:
            rest = iter(given)
            return op(
                *(next(rest) if argument is None else argument for argument in arguments), **options
            )

        try:
            generator = torch.Generator().manual_seed(0)
            call(*(each.make(each.sizes, generator) for each in tensors))
        except (RuntimeError, ValueError, TypeError, NotImplementedError):
            continue
        yield Case(
            f"{op} of {tensors[0].dtype}".replace("torch.", ""),
            call,
            tuple(tensors),
            tolerance=1e-4,
        )
        return


def _float(sizes: tuple[int, ...]) -> Arg:
    return floats(*sizes)


def _positive(sizes: tuple[int, ...]) -> Arg:
    return floats(*sizes, positive=True)


def _int(sizes: tuple[int, ...]) -> Arg:
    return ints(*sizes, low=1, high=4)


def _bool(sizes: tuple[int, ...]) -> Arg:
    return bools(*sizes)


ELEMENTWISE: tuple[Case, ...] = tuple(elementwise())
