"""Whole layers of transformers that eager runs as one op: padded tokens are masked as keys, else
rows of their own.
"""

from __future__ import annotations

from typing import Any

import torch

from meta_fns.padding.axes import capacity_of, is_padded, length, padded_sizes
from meta_fns.padding.broadcasting import broadcast_axes, need_agreement
from meta_fns.padding.padded import Emitter, Handle, Padded, lowered
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import masked, number, valid_along

__all__ = ["encoder_layer", "heads"]

_aten = torch.ops.aten
_OF_KEYS = 1  # the type of a mask (batch, keys)


def _masked_keys(
    emit: Emitter, keys: Padded, mask: Padded | None, kind: int | None
) -> tuple[Handle | None, int | None]:
    """The mask, which is true for what weighs nothing, with the padded keys; and its type."""
    axis = keys.axes[1]
    if mask is not None:
        scores = keys.axes[0], mask.axes[1] if mask.ndim == 4 else (), axis, axis
        broadcast_axes(
            [mask.axes, (keys.axes[0], axis) if kind == _OF_KEYS else scores[-mask.ndim :]]
        )
    if not is_padded(axis):
        return (None, kind) if mask is None else (mask.tensor, kind)
    valid = valid_along(emit, axis, keys.device)
    emit.repaired(f"attention mask: keys beyond {length(axis)}", *padded_sizes((axis,)))
    if mask is not None:
        made: Handle = emit.call(_aten.where.self, valid, mask.tensor, number(emit, 1, mask))
        return made, kind
    row = emit.call(_aten.view.default, emit.call(_aten.logical_not.default, valid), [1, -1])
    whole = emit.call(_aten.expand.default, row, [capacity_of(keys.axes[0]), capacity_of(axis)])
    return emit.call(_aten.clone.default, whole, memory_format=torch.contiguous_format), _OF_KEYS


def _need_features(x: Padded, *weights: Any) -> None:
    if is_padded(x.axes[2]) or any(isinstance(each, Padded) and each.sizes for each in weights):
        raise Refuse("features are padded", *padded_sizes(x.axes[2:]), remedy="keep them constant")


def heads(
    emit: Emitter,
    query: Padded,
    key: Padded,
    value: Padded,
    embed_dim: int,
    num_head: int,
    qkv_weight: Padded,
    qkv_bias: Padded,
    proj_weight: Padded,
    proj_bias: Padded,
    mask: Padded | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Padded | None, ...]:
    """Attention of several heads with its projections: ``(n, s, d) -> (n, s, d)``, and its
    weights.
    """
    weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
    for each in (query, key, value):
        _need_features(each, *weights)
        need_agreement(query.axes[0], each.axes[0])
        need_agreement(query.axes[1], each.axes[1])
    keys, kind = _masked_keys(emit, key, mask, mask_type)
    tensors = [masked(emit, each, 0, {1}).tensor for each in (query, key, value)]
    rest = (
        embed_dim,
        num_head,
        *map(lowered, weights),
        keys,
        need_weights,
        average_attn_weights,
        kind,
    )
    out, shares = emit.call(emit.op, *tensors, *rest)
    if shares is None or emit.results[1] is None:
        return Padded(out, query.axes), None
    spread = () if average_attn_weights else ((num_head,),)
    return Padded(out, query.axes), Padded(
        shares, (query.axes[0], *spread, query.axes[1], key.axes[1])
    )


def encoder_layer(
    emit: Emitter,
    src: Padded,
    *weights: Any,
    mask: Padded | None = None,
    mask_type: int | None = None,
) -> Padded:
    """``TransformerEncoderLayer``: ``(n, s, d) -> (n, s, d)``."""
    names = [argument.name for argument in emit.op._schema.arguments][1:]
    given = dict(zip(names, weights, strict=False)) | {"mask": mask, "mask_type": mask_type}
    given.update(zip(names, weights, strict=False))
    _need_features(src, *(each for name, each in given.items() if name != "mask"))
    keys, kind = _masked_keys(emit, src, given["mask"], given["mask_type"])
    plain = [lowered(given[name]) for name in names if name not in ("mask", "mask_type")]
    return Padded(
        emit.call(emit.op, masked(emit, src, 0, {1}).tensor, *plain, keys, kind), src.axes
    )
