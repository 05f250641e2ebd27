"""The gradients of fused attention, on CPU and CUDA: laid out like the inputs, or as
``(b, s, h, d)``.
"""

from __future__ import annotations

from collections.abc import Sequence

from meta_fns.core import layout
from meta_fns.core.checks import need_equal, need_rank, need_same
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, ceil_div
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import laid_out_like
from meta_fns.padding.attention import flash_for_cpu_backward
from meta_fns.padding.attention_gradients import cudnn_backward, efficient_backward, flash_backward

__all__ = ["heads_inside"]

Three = tuple[TensorSpec, TensorSpec, TensorSpec]


def heads_inside(spec: TensorSpec, sizes: Sequence[Size] | None = None) -> TensorSpec:
    """Return a fresh ``(b, h, s, d)`` whose memory layout is ``(b, s, h, d)``."""
    b, h, s, d = spec.sizes if sizes is None else sizes
    w, x, y, z = layout.contiguous_strides((b, s, h, d))
    return TensorSpec((b, h, s, d), (w, y, x, z), 0, spec.dtype, spec.device)


def _checked(grad_out: TensorSpec, query: TensorSpec, key: TensorSpec, value: TensorSpec) -> None:
    for name, spec in (("grad_out", grad_out), ("query", query), ("key", key), ("value", value)):
        need_rank(name, spec, 4)
        need_same(name, spec, "query", query)


@rule(
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
    padding=flash_for_cpu_backward,
)
def flash_attention_for_cpu_backward(
    grad_out: TensorSpec,
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    out: TensorSpec,
    logsumexp: TensorSpec,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: TensorSpec | None = None,
    scale: float | None = None,
) -> Three:
    """The gradients of query, key and value, as ``(b, s, h, d)`` in memory."""
    _checked(grad_out, query, key, value)
    for spec in (key, value):
        need_equal(query.sizes[3], spec.sizes[3], "the widths of query, key and value")
    return heads_inside(query), heads_inside(key), heads_inside(value)


@rule("aten._scaled_dot_product_flash_attention_backward.default", padding=flash_backward)
def flash_attention_backward(
    grad_out: TensorSpec,
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    out: TensorSpec,
    logsumexp: TensorSpec,
    cum_seq_q: TensorSpec | None,
    cum_seq_k: TensorSpec | None,
    max_q: Size,
    max_k: Size,
    dropout_p: float,
    is_causal: bool,
    philox_seed: TensorSpec,
    philox_offset: TensorSpec,
    *,
    scale: float | None = None,
) -> Three:
    """The gradients of query, key and value, laid out like them."""
    _checked(grad_out, query, key, value)
    return laid_out_like(query), laid_out_like(key), laid_out_like(value)


@rule("aten._scaled_dot_product_cudnn_attention_backward.default", padding=cudnn_backward)
def cudnn_attention_backward(
    grad_out: TensorSpec,
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    out: TensorSpec,
    logsumexp: TensorSpec,
    philox_seed: TensorSpec,
    philox_offset: TensorSpec,
    attn_bias: TensorSpec | None,
    cum_seq_q: TensorSpec | None,
    cum_seq_k: TensorSpec | None,
    max_q: Size,
    max_k: Size,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> Three:
    """The gradients of query, key and value, laid out like them."""
    _checked(grad_out, query, key, value)
    return laid_out_like(query), laid_out_like(key), laid_out_like(value)


@rule("aten._scaled_dot_product_efficient_attention_backward.default", padding=efficient_backward)
def efficient_attention_backward(
    grad_out_: TensorSpec | None,
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    attn_bias: TensorSpec | None,
    out: TensorSpec,
    logsumexp: TensorSpec,
    philox_seed: TensorSpec,
    philox_offset: TensorSpec,
    dropout_p: float,
    grad_input_mask: Sequence[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[TensorSpec | None, TensorSpec | None, TensorSpec | None, TensorSpec | None]:
    """The gradients of query, key and value, as ``(b, s, h, d)`` in memory, and of the bias if
    asked for.
    """
    if grad_out_ is None:
        return None, None, None, None
    _checked(grad_out_, query, key, value)
    bias = None
    if attn_bias is not None and grad_input_mask[3]:
        # Rows are padded to multiples of 16 elements.
        last = attn_bias.sizes[-1]
        padded = layout.contiguous_strides((*attn_bias.sizes[:-1], ceil_div(last, 16) * 16))
        bias = TensorSpec(attn_bias.sizes, padded, 0, attn_bias.dtype, attn_bias.device)
    return heads_inside(query), heads_inside(key), heads_inside(value), bias


@rule("aten._scaled_dot_product_fused_attention_overrideable_backward.default")
def fused_attention_overrideable_backward(
    grad_out: TensorSpec,
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    attn_bias: TensorSpec | None,
    grad_input_mask: Sequence[bool],
    out: TensorSpec,
    logsumexp: TensorSpec,
    cum_seq_q: TensorSpec | None,
    cum_seq_k: TensorSpec | None,
    max_q: Size,
    max_k: Size,
    dropout_p: float,
    is_causal: bool,
    philox_seed: TensorSpec,
    philox_offset: TensorSpec,
    *,
    scale: float | None = None,
) -> tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec | None]:
    """The gradients of query, key, value and bias, laid out like them."""
    return (
        laid_out_like(query),
        laid_out_like(key),
        laid_out_like(value),
        None if attn_bias is None else laid_out_like(attn_bias),
    )


@rule("aten._flash_attention_backward.default")
def raw_flash_attention_backward(
    grad_out: TensorSpec,
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    out: TensorSpec,
    logsumexp: TensorSpec,
    cum_seq_q: TensorSpec | None,
    cum_seq_k: TensorSpec | None,
    max_q: Size,
    max_k: Size,
    dropout_p: float,
    is_causal: bool,
    rng_state: TensorSpec,
    unused: TensorSpec,
    *,
    scale: float | None = None,
    window_size_left: Size | None = None,
    window_size_right: Size | None = None,
) -> Three:
    """The gradients of query, key and value, laid out like them."""
    return laid_out_like(query), laid_out_like(key), laid_out_like(value)


@rule("aten._efficient_attention_backward.default")
def raw_efficient_attention_backward(
    grad_out_: TensorSpec,
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    bias: TensorSpec | None,
    out: TensorSpec,
    cu_seqlens_q: TensorSpec | None,
    cu_seqlens_k: TensorSpec | None,
    max_seqlen_q: Size,
    max_seqlen_k: Size,
    logsumexp: TensorSpec,
    dropout_p: float,
    philox_seed: TensorSpec,
    philox_offset: TensorSpec,
    custom_mask_type: int,
    bias_requires_grad: bool,
    *,
    scale: float | None = None,
    num_splits_key: int | None = None,
    window_size: int | None = None,
    shared_storage_dqdkdv: bool = False,
) -> tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec | None]:
    """The gradients of query, key and value, contiguous (or in one storage), and of the bias if
    asked for.
    """
    if shared_storage_dqdkdv:
        b, s, h, d = query.sizes
        strides = layout.contiguous_strides((b, s, 3, h, d))
        kept = (strides[0], strides[1], strides[3], strides[4])
        made = [query.view(query.sizes, kept, i * strides[2]) for i in range(3)]
        queries, keys, values = made
    else:
        queries, keys, values = query.fresh(), key.fresh(), value.fresh()
    made_bias = None
    if bias is not None and bias_requires_grad:
        padded = layout.contiguous_strides((*bias.sizes[:-1], ceil_div(bias.sizes[-1], 16) * 16))
        made_bias = TensorSpec(bias.sizes, padded, 0, bias.dtype, bias.device)
    return queries, keys, values, made_bias
