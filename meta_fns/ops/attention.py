"""Fused attention."""

from __future__ import annotations

import torch

from meta_fns.core import dense
from meta_fns.core.broadcasting import expand
from meta_fns.core.checks import need_equal, need_sizes
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, at_least_one, check, same, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, ShapeError, UnsupportedOp
from meta_fns.padding import attention as padded_attention

__all__ = ["flash_attention_for_cpu"]


@rule(
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    padding=padded_attention.flash_for_cpu,
)
def flash_attention_for_cpu(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: TensorSpec | None = None,
    scale: float | None = None,
) -> tuple[TensorSpec, TensorSpec]:
    """``(b, h, s, d), (b, h, t, d), (b, h, t, d) -> (b, h, s, d)``, laid out like query; logsumexp.

    The logsumexp is ``(b, h, s)``, laid out as ``(b, s, h)``.
    """
    for name, spec in (("query", query), ("key", key), ("value", value)):
        if len(spec.sizes) != 4:
            raise ShapeError(f"{name} must have 4 dimensions, got {show(spec.sizes)}")
        if not spec.dtype.is_floating_point or spec.dtype is not query.dtype:
            raise DtypeError(
                f"{name} must be of query's floating dtype {query.dtype}, got {spec.dtype}"
            )
    if dropout_p != 0.0:
        raise ShapeError(f"dropout must be 0, got {dropout_p}")
    b, h, s, d = query.sizes
    t = key.sizes[2]
    for mine, other in (
        (d, key.sizes[3]),
        (d, value.sizes[3]),
        (t, value.sizes[2]),
        (b, key.sizes[0]),
    ):
        if mine is not other and not same(mine, other):
            check(
                mine == other,
                lambda: (
                    f"sizes differ: {show(query.sizes)}, {show(key.sizes)}, {show(value.sizes)}"
                ),
            )
    if attn_mask is not None:
        _check_mask(attn_mask, query, t)
    if query.canonical():
        output = query.fresh()
    else:
        strides = dense.like_strides(query.sizes, query.strides, None)
        output = TensorSpec(query.sizes, strides, 0, query.dtype, query.device)
    heads = at_least_one(h)
    dtype = torch.float64 if query.dtype is torch.float64 else torch.float32
    logsumexp = TensorSpec((b, h, s), (at_least_one(s) * heads, 1, heads), 0, dtype, query.device)
    return output, logsumexp


def _check_mask(mask: TensorSpec, query: TensorSpec, keys: Size) -> None:
    if len(mask.sizes) not in (2, 4):
        raise ShapeError(f"attn_mask must have 2 or 4 dimensions, got {show(mask.sizes)}")
    if mask.dtype is not query.dtype and mask.dtype is not torch.float32:
        raise DtypeError(f"attn_mask must be of query's dtype {query.dtype}, got {mask.dtype}")
    full = (*query.sizes[:3], keys)
    expand(mask.sizes, mask.strides, full if len(mask.sizes) == 4 else full[2:])


@rule("aten.scaled_dot_product_attention.default")
def scaled_dot_product_attention(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    attn_mask: TensorSpec | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> TensorSpec:
    """Attention as one op, where every kernel that the CPU may choose lays its result out in
    order.
    """
    if attn_mask is not None or dropout_p != 0 or enable_gqa or query.device.type != "cpu":
        raise UnsupportedOp(
            "attention as one op with a mask, dropout or shared heads, or on this device"
        )
    if len(query.sizes) == 4:
        if not query.canonical():
            raise UnsupportedOp("attention as one op on a query that is not in order")
        return flash_attention_for_cpu(query, key, value, dropout_p, is_causal)[0]
    for name, spec in (("query", query), ("key", key), ("value", value)):
        if len(spec.sizes) != len(query.sizes) or len(spec.sizes) < 2:
            raise ShapeError(
                f"{name} must have as many dimensions as query, and two, got {show(spec.sizes)}"
            )
        if not spec.dtype.is_floating_point or spec.dtype is not query.dtype:
            raise DtypeError(
                f"{name} must be of query's floating dtype {query.dtype}, got {spec.dtype}"
            )
    for mine, other in zip(query.sizes[:-2], key.sizes[:-2], strict=True):
        need_equal(mine, other, "the batches of query and key")
    need_sizes("value", value, (*key.sizes[:-1], value.sizes[-1]))
    need_equal(query.sizes[-1], key.sizes[-1], "the widths of query and key")
    return TensorSpec.contiguous((*query.sizes[:-1], value.sizes[-1]), query.dtype, query.device)
