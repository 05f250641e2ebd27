"""Fused attention."""

from __future__ import annotations

import torch

from meta_fns.errors import DtypeError, ShapeError
from meta_fns.registry import rule
from meta_fns.sizes import check, same, show
from meta_fns.spec import TensorSpec

__all__ = ["flash_attention_for_cpu"]


@rule("aten._scaled_dot_product_flash_attention_for_cpu.default")
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
    """`(b, h, s, d), (b, h, t, d), (b, h, t, d) -> (b, h, s, d)` stored as `(b, s, h, d)`, and logsumexp `(b, h, s)`
    as `(b, s, h)`.
    """
    for name, spec in (("query", query), ("key", key), ("value", value)):
        if len(spec.sizes) != 4:
            raise ShapeError(f"{name} must have 4 dimensions, got {show(spec.sizes)}")
        if not spec.dtype.is_floating_point or spec.dtype is not query.dtype:
            raise DtypeError(f"{name} must be of query's floating dtype {query.dtype}, got {spec.dtype}")
    if dropout_p != 0.0:
        raise ShapeError(f"dropout must be 0, got {dropout_p}")
    b, h, s, d = query.sizes
    t = key.sizes[2]
    for mine, other in ((d, key.sizes[3]), (d, value.sizes[3]), (t, value.sizes[2]), (b, key.sizes[0])):
        if mine is not other and not same(mine, other):
            check(mine == other, lambda: f"sizes differ: {show(query.sizes)}, {show(key.sizes)}, {show(value.sizes)}")
    dtype = torch.float64 if query.dtype is torch.float64 else torch.float32
    output = TensorSpec.contiguous((b, s, h, d), query.dtype, query.device)
    logsumexp = TensorSpec.contiguous((b, s, h), dtype, query.device)
    o, l = output.strides, logsumexp.strides
    return (
        output.view((b, h, s, d), (o[0], o[2], o[1], o[3])),
        logsumexp.view((b, h, s), (l[0], l[2], l[1])),
    )
