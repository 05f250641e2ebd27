"""Fused attention as CUDA has it: flash, memory-efficient, cuDNN, and the overrideable entry of
other devices.
"""

from __future__ import annotations

from typing import Any

import torch

from meta_fns.core import dense
from meta_fns.core.checks import HALVES, fit_into, need_dtype, need_equal, need_rank
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Shape, Size, at_least_one, ceil_div, same_shape
from meta_fns.core.spec import CPU, TensorSpec
from meta_fns.core.tensor_iterator import laid_out_like
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.attention_backward import heads_inside
from meta_fns.padding.attention_on_device import fused_on_device

__all__: list[str] = []


def _checked(query: TensorSpec, key: TensorSpec, value: TensorSpec, halves: bool) -> None:
    for name, spec in (("query", query), ("key", key), ("value", value)):
        need_rank(name, spec, 4)
        if spec.dtype is not query.dtype or not spec.dtype.is_floating_point:
            raise DtypeError(
                f"{name} must be of query's floating dtype {query.dtype}, got {spec.dtype}"
            )
    if halves:
        need_dtype("query", query, HALVES)
    need_equal(query.sizes[0], key.sizes[0], "the batches of query and key")
    need_equal(key.sizes[0], value.sizes[0], "the batches of key and value")
    need_equal(query.sizes[3], key.sizes[3], "the widths of query and key")
    need_equal(key.sizes[2], value.sizes[2], "the lengths of key and value")


def _float32(query: TensorSpec, sizes: Shape) -> TensorSpec:
    return TensorSpec.contiguous(sizes, torch.float32, query.device)


def _like_query(query: TensorSpec, sizes: Shape) -> TensorSpec:
    """Fresh, the dimensions in memory ordered as those of the query are."""
    if same_shape(query.sizes, sizes):
        return laid_out_like(query)
    order = sorted_by_stride(query.sizes, query.strides)
    strides: list[Size] = [0] * len(sizes)
    stride: Size = 1
    for d in reversed(order):
        strides[d] = stride
        stride = stride * at_least_one(sizes[d])
    return TensorSpec(sizes, tuple(strides), 0, query.dtype, query.device)


def sorted_by_stride(sizes: Shape, strides: Shape) -> list[int]:
    """The dimensions by falling stride; equal ones stay as they are."""
    found: list[int] = []
    for d, stride in enumerate(strides):
        at = len(found)
        while (
            at and dense.compare(strides[found[at - 1]], stride, sizes[found[at - 1]], sizes[d]) < 0
        ):
            at -= 1
        found.insert(at, d)
    return found


def _rng() -> tuple[TensorSpec, TensorSpec]:
    """Seed and offset of a kernel that keeps them on the CPU unless a CUDA graph is being
    captured.
    """
    number = TensorSpec.contiguous((), torch.int64, CPU)
    return number, number


@rule("aten._scaled_dot_product_flash_attention.default", padding=fused_on_device)
def flash_attention(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """``(b, h, s, d), (b, h, t, d), (b, h, t, d) -> (b, h, s, d)``, laid out like query; what
    backward needs.

    That is the logsumexp ``(b, h, s)``, sizes and random state.
    """
    _checked(query, key, value, True)
    b, h, s, _ = query.sizes
    t = key.sizes[2]
    state = TensorSpec.contiguous((2,), torch.uint64, query.device)
    unused = TensorSpec.contiguous((), torch.uint64, query.device)
    if return_debug_mask and dropout_p > 0:
        rows, columns = ceil_div(s, 128) * 128, ceil_div(t, 128) * 128
        debug = TensorSpec.contiguous((b, h, rows, columns), query.dtype, query.device)
    else:
        debug = TensorSpec.contiguous((0,), query.dtype, query.device)
    return laid_out_like(query), _float32(query, (b, h, s)), None, None, s, t, state, unused, debug


@rule("aten._scaled_dot_product_efficient_attention.default", padding=fused_on_device)
def efficient_attention(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    attn_bias: TensorSpec | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec]:
    """``(b, h, s, d), (b, h, t, d), (b, h, t, v) -> (b, h, s, v)``, as ``(b, s, h, v)`` in memory;
    logsumexp.

    The logsumexp is padded to 32.
    """
    _checked(query, key, value, False)
    b, h, s, _ = query.sizes
    if attn_bias is not None:
        fit_into("attn_bias", attn_bias.sizes, (b, h, s, key.sizes[2]))
    output = heads_inside(query, (b, h, s, value.sizes[3]))
    rows = ceil_div(s, 32) * 32 if compute_log_sumexp else 0
    return output, _float32(query, (b, h, rows)), *_rng()


@rule("aten._scaled_dot_product_cudnn_attention.default", padding=fused_on_device)
def cudnn_attention(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    attn_bias: TensorSpec | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """``(b, h, s, d), (b, h, t, d), (b, h, t, v) -> (b, h, s, v)``, the dimensions in memory as in
    query.
    """
    _checked(query, key, value, True)
    b, h, s, _ = query.sizes
    output = _like_query(query, (b, h, s, value.sizes[3]))
    number = TensorSpec.contiguous((), torch.int64, query.device)
    logsumexp = _float32(query, (b, h, s, 1)) if compute_log_sumexp else None
    return output, logsumexp, None, None, s, key.sizes[2], number, number, None


@rule("aten._scaled_dot_product_fused_attention_overrideable.default", padding=fused_on_device)
def fused_attention_overrideable(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    attn_bias: TensorSpec | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """``(b, h, s, d), (b, h, t, d), (b, h, t, v) -> (b, h, s, v)``, the dimensions in memory as in
    query.
    """
    need_rank("query", query, 3, 4)
    sizes = (*query.sizes[:-1], value.sizes[-1])
    s, t = query.sizes[-2], key.sizes[-2]
    lead = query.sizes[:-1] if len(query.sizes) == 4 else (1, *query.sizes[:-1])
    output = _like_query(query, sizes)
    number = TensorSpec.contiguous((), torch.int64, query.device)
    return output, _float32(query, lead), None, None, s, t, number, number, None


@rule("aten._flash_attention_forward.default")
def raw_flash_attention(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    cum_seq_q: TensorSpec | None,
    cum_seq_k: TensorSpec | None,
    max_q: Size,
    max_k: Size,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: Size | None = None,
    window_size_right: Size | None = None,
    seqused_k: TensorSpec | None = None,
    alibi_slopes: TensorSpec | None = None,
    block_table: TensorSpec | None = None,
    num_splits: int | None = None,
) -> tuple[TensorSpec, ...]:
    """``(b, s, h, d) -> (b, s, h, d)``, or packed ``(total, h, d)`` with the ends of sequences;
    what backward needs.
    """
    need_dtype("query", query, HALVES)
    if cum_seq_q is None:
        need_rank("query", query, 4)
        b, s, h, _ = query.sizes
        t = key.sizes[1]
        logsumexp = _float32(query, (b, h, s))
    else:
        need_rank("query", query, 3)
        b, s, t = cum_seq_q.numel() - 1, max_q, max_k
        h = query.sizes[1]
        logsumexp = _float32(query, (h, query.sizes[0]))
    state = TensorSpec.contiguous((2,), torch.uint64, query.device)
    unused = TensorSpec.contiguous((), torch.uint64, query.device)
    if return_debug_mask and dropout_p > 0:
        rows, columns = ceil_div(s, 128) * 128, ceil_div(t, 128) * 128
        debug = TensorSpec.contiguous((b, h, rows, columns), query.dtype, query.device)
    else:
        debug = TensorSpec.contiguous((0,), query.dtype, query.device)
    return laid_out_like(query), logsumexp, state, unused, debug


@rule("aten._efficient_attention_forward.default")
def raw_efficient_attention(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    bias: TensorSpec | None,
    cu_seqlens_q: TensorSpec | None,
    cu_seqlens_k: TensorSpec | None,
    max_seqlen_q: Size | None,
    max_seqlen_k: Size | None,
    dropout_p: float,
    custom_mask_type: int,
    compute_log_sumexp: bool = False,
    *,
    scale: float | None = None,
    seqlen_k: TensorSpec | None = None,
    window_size: int | None = None,
) -> tuple[Any, ...]:
    """``(b, s, h, d), (b, t, h, d), (b, t, h, v) -> (b, s, h, v)``, contiguous; logsumexp padded to
    32.
    """
    need_rank("query", query, 4)
    b, s, h, _ = query.sizes
    output = query.fresh((b, s, h, value.sizes[3]))
    batch, longest, longest_k = b, s, key.sizes[1]
    if cu_seqlens_q is not None:
        if max_seqlen_q is None:
            raise ShapeError("max_seqlen_q must be given with cu_seqlens_q")
        batch, longest = cu_seqlens_q.sizes[0] - 1, max_seqlen_q
        longest_k = longest_k if max_seqlen_k is None else max_seqlen_k
    rows = ceil_div(longest, 32) * 32 if compute_log_sumexp else 0
    return output, _float32(query, (batch, h, rows)), *_rng(), longest, longest_k
