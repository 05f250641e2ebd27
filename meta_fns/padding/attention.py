"""Fused attention of padded tensors: padded keys weigh nothing, and what weighs nothing is a finite
number.

Padded queries and batches make results that are padding.  Padded keys are left out by the causal
mask where every valid query comes before them, else by a mask; their keys and values become 0,
since a weight of 0 times NaN is NaN.

The kernel of the CPU answers 0 or NaN for a row with a NaN among its scores: which of them depends
on whether there is a mask, and on the number of keys.  So calls with queries, keys or masks that
are not finite are refused when they run.
"""

from __future__ import annotations

import math

import torch

from meta_fns.core.sizes import Size, known
from meta_fns.padding.axes import Axis, agree, capacity_of, is_padded, length, padded_sizes, prefix
from meta_fns.padding.broadcasting import broadcast_axes, need_agreement
from meta_fns.padding.padded import Emitter, Handle, Padded
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import masked, valid_along

__all__ = ["added_for_keys", "flash_for_cpu", "flash_for_cpu_backward", "need_mask", "prepared"]

_aten = torch.ops.aten


def prepared(
    emit: Emitter, query: Padded, key: Padded, value: Padded, causal: bool
) -> tuple[Padded, Padded]:
    """Keys and values whose padding is 0.

    Raises: Refuse where dimensions do not fit, or a causal mask does not hide the padded keys.
    """
    for each in (key, value):
        need_agreement(query.axes[0], each.axes[0])
        # else there may be fewer heads of keys
        if is_padded(query.axes[1]) or is_padded(each.axes[1]):
            need_agreement(query.axes[1], each.axes[1])
    need_agreement(key.axes[2], value.axes[2])
    if any(map(is_padded, (query.axes[3], key.axes[3], value.axes[3]))):
        raise Refuse("the size of a head is padded", *query.sizes)
    if is_padded(key.axes[2]):
        _need_keys(length(key.axes[2]))
        if causal:
            keys, queries = prefix(key.axes[2]), prefix(query.axes[2])
            if not known(queries <= keys):
                raise Refuse("a causal mask with more queries than keys", queries, keys)
    return masked(emit, key, 0, {2}), masked(emit, value, 0, {2})


def _need_keys(keys: Size) -> None:
    if not known(keys >= 1):
        raise Refuse("attention to no key at all is not known to be avoided", keys)


def added_for_keys(emit: Emitter, query: Padded, keys: Axis, given: Padded | None) -> Handle | None:
    """Return the mask that is added to the scores: minus infinity for padded keys, the given mask
    for others.

    Raises: Refuse where the given mask is padded otherwise than the scores.
    """
    if not is_padded(keys):
        return None if given is None else given.tensor
    mask = valid_along(emit, keys, query.device)
    dtype = query.dtype if given is None else given.dtype
    never = emit.call(_aten.scalar_tensor.default, -math.inf, dtype=dtype, device=query.device)
    emit.repaired(f"attention mask: keys beyond {length(keys)}", *padded_sizes((keys,)))
    if given is not None:
        made: Handle = emit.call(_aten.where.self, mask, given.tensor, never)
        return made
    always = emit.call(_aten.scalar_tensor.default, 0.0, dtype=dtype, device=query.device)
    row = emit.call(_aten.where.self, mask, always, never)
    shaped: Handle = emit.call(_aten.reshape.default, row, [1, 1, 1, capacity_of(keys)])
    return shaped


def need_mask(query: Padded, keys: Axis, mask: Padded) -> None:
    """Raise Refuse where a mask is padded otherwise than the scores."""
    broadcast_axes([mask.axes, (*query.axes[:3], keys)[-mask.ndim :]])
    if is_padded(keys) and mask.axes[-1] and not agree(mask.axes[-1], keys):
        raise Refuse("the mask is padded otherwise than the keys", *mask.sizes)


def _refuse_nan(emit: Emitter, query: Padded, key: Padded, mask: Padded | None) -> None:
    """Emit a check that the scores have no NaN: infinite queries or keys make some, infinite masks
    do not.
    """
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    sums = [
        emit.call(_aten.sum.dim_IntList, masked(emit, each, 0).tensor, None, False, dtype=wide)
        for each in (query, key)
    ]
    total = emit.call(_aten.add.Tensor, *sums)
    finite = emit.call(_aten.eq.Scalar, emit.call(_aten.sub.Tensor, total, total), 0)
    emit.call(_aten._assert_async.msg, finite, "attention to or from numbers that are not finite")
    if mask is not None and mask.dtype.is_floating_point:
        numbers = masked(emit, mask, 0).tensor
        found = emit.call(_aten.any.default, emit.call(_aten.ne.Tensor, numbers, numbers))
        emit.call(
            _aten._assert_async.msg,
            emit.call(_aten.logical_not.default, found),
            "a NaN in an attention mask",
        )


def flash_for_cpu(
    emit: Emitter,
    query: Padded,
    key: Padded,
    value: Padded,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Padded | None = None,
    scale: float | None = None,
) -> tuple[Padded, Padded]:
    """``(b, h, s, d), (b, h, t, d), (b, h, t, d) -> (b, h, s, d), (b, h, s)``."""
    key, value = prepared(emit, query, key, value, is_causal)
    if attn_mask is not None:
        need_mask(query, key.axes[2], attn_mask)
    if is_padded(key.axes[2]) or (is_causal and is_padded(query.axes[2])):
        _refuse_nan(emit, query, key, attn_mask)
    mask = (
        (attn_mask and attn_mask.tensor)
        if is_causal
        else added_for_keys(emit, query, key.axes[2], attn_mask)
    )
    out, logsumexp = emit.call(
        emit.op,
        query.tensor,
        key.tensor,
        value.tensor,
        dropout_p,
        is_causal,
        attn_mask=mask,
        scale=scale,
    )
    return Padded(out, query.axes), Padded(logsumexp, query.axes[:3])


def flash_for_cpu_backward(
    emit: Emitter,
    grad_out: Padded,
    query: Padded,
    key: Padded,
    value: Padded,
    out: Padded,
    logsumexp: Padded,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Padded | None = None,
    scale: float | None = None,
) -> tuple[Padded, Padded, Padded]:
    """The gradients of query, key and value: padded queries add 0 to those of keys, and padded keys
    weigh nothing.
    """
    key, value = prepared(emit, query, key, value, is_causal)
    for each in (grad_out, out, logsumexp):
        for own, other in zip(each.axes[:3], query.axes[:3], strict=True):
            need_agreement(own, other)
    rows = [masked(emit, each, 0, {2}).tensor for each in (grad_out, query, out, logsumexp)]
    if attn_mask is not None:
        need_mask(query, key.axes[2], attn_mask)
        attn_mask = masked(emit, attn_mask, 0, {attn_mask.ndim - 2})
    mask = (
        (attn_mask and attn_mask.tensor)
        if is_causal
        else added_for_keys(emit, query, key.axes[2], attn_mask)
    )
    gradient, queries, result, total = rows
    made = emit.call(
        emit.op,
        *(gradient, queries, key.tensor, value.tensor, result, total, dropout_p, is_causal),
        attn_mask=mask,
        scale=scale,
    )
    pairs = zip(made, (query, key, value), strict=True)
    return tuple(Padded(each, given.axes) for each, given in pairs)  # type: ignore[return-value]
