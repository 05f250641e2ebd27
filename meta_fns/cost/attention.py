"""Scaled dot product attention in all its forms, counted as ``torch.utils.flop_counter`` counts it.

Two matrix products forward, five backward (the scores are computed again); softmax, mask and what a
causal mask spares are left out. Of sequences of different lengths in one tensor (``cum_seq_q``)
each counts as the longest.
"""

from __future__ import annotations

from meta_fns.core.cost_rule import CostRule, Formula, OpCall
from meta_fns.core.sizes import Shape, Size, product
from meta_fns.cost.charging import charge_all


def _products(query: Shape, key: Shape, value: Shape, backward: bool) -> Size:
    """For ``(batch, heads, length, width)``; heads of keys and values are shared where the query
    has more.
    """
    batch, heads, queries, width = query
    keys, out = key[2], value[3]
    scores = product((batch, heads, queries, keys))
    return scores * (3 * width + 2 * out if backward else width + out) * 2


def _heads_first(first: int, backward: bool) -> Formula:
    """The query at argument ``first`` as ``(batch, heads, length, width)``, keys and values after
    it.
    """

    def flops(call: OpCall) -> Size:
        query, key, value = (call.args[first + offset].sizes for offset in range(3))
        return _products(query, key, value, backward)

    return flops


def _heads_inside(first: int, lengths: int, backward: bool) -> Formula:
    """Return the operations of attention on ``(batch, length, heads, width)``.

    With argument ``lengths`` (the starts of sequences that are stored one after the other) the
    tensors are ``(tokens, heads, width)``, or have a leading dimension of 1. The longest lengths
    are the arguments two and three places after ``lengths``.
    """

    def flops(call: OpCall) -> Size | None:
        query, key, value = (call.args[first + offset].sizes for offset in range(3))
        starts = call.arg(lengths)
        if starts is None:
            (batch, queries), keys = query[:2], key[1]
        else:
            batch, queries, keys = starts.sizes[0] - 1, call.arg(lengths + 2), call.arg(lengths + 3)
            if queries is None or keys is None:
                return None
        return _products(
            (batch, query[-2], queries, query[-1]),
            (batch, key[-2], keys, key[-1]),
            (batch, value[-2], keys, value[-1]),
            backward,
        )

    return flops


def _whole(call: OpCall) -> Size:
    """Return the operations of attention on ``(..., length, width)``, with or without heads."""
    query, key, value = (call.args[i].sizes for i in range(3))
    return product(query[:-1]) * key[-2] * (query[-1] + value[-1]) * 2


def _projections(call: OpCall) -> Size:
    """``(batch, length, width)`` through one projection of queries, keys and values, attention and
    one more.
    """
    batch, length, width = call.args[0].sizes
    return batch * length * width * (8 * width + 4 * length)


def _encoder_layer(call: OpCall) -> Size:
    batch, length, width = call.args[0].sizes
    hidden = call.args[14].sizes[0]
    return _projections(call) + batch * length * width * hidden * 4


charge_all(
    CostRule("attention", _heads_first(0, False)),
    """
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
    _scaled_dot_product_fused_attention_overrideable
    """,
)
charge_all(
    CostRule("attention", _heads_first(1, True)),
    """
    _scaled_dot_product_flash_attention_for_cpu_backward
    _scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward
    _scaled_dot_product_cudnn_attention_backward
    _scaled_dot_product_fused_attention_overrideable_backward
    """,
)
charge_all(CostRule("attention", _heads_inside(0, 3, False)), "_flash_attention_forward")
charge_all(CostRule("attention", _heads_inside(0, 4, False)), "_efficient_attention_forward")
charge_all(
    CostRule("attention", _heads_inside(1, 6, True)),
    "_flash_attention_backward _efficient_attention_backward",
)
charge_all(CostRule("attention", _whole), "scaled_dot_product_attention")
charge_all(CostRule("attention", _projections, kernels=5), "_native_multi_head_attention")
charge_all(CostRule("attention", _encoder_layer, kernels=12), "_transformer_encoder_layer_fwd")
