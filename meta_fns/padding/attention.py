"""Fused attention of padded tensors: padded keys weigh nothing, and what weighs nothing is a finite number.

Padded queries and batches make results that are padding.  Padded keys are left out by the causal mask where every valid
query comes before them, else by a mask; their keys and values become 0, since a weight of 0 times NaN is NaN.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from meta_fns.core.layout import contiguous_strides
from meta_fns.core.sizes import Size, known
from meta_fns.padding.axes import Axis, agree, capacity_of, is_padded, length, padded_sizes, prefix
from meta_fns.padding.broadcasting import broadcast_axes, need_agreement
from meta_fns.padding.padded import Emitter, Handle, Padded
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import masked, valid_along

__all__ = ["flash_for_cpu", "flash_for_cpu_backward", "fused_on_device"]

_aten = torch.ops.aten
_CUDNN = _aten._scaled_dot_product_cudnn_attention.default
_FLASH = _aten._scaled_dot_product_flash_attention.default
_PLANS_PAY = 1024
"""For no more keys flash attention is called in place of cuDNN's kernel, which makes a plan for every new size.

On an H100 a plan takes some 60 ms, half of what a new bucket took, and replays of a Llama with up to 1,024 keys are no
slower without it.  What more keys cost was not measured: there the kernel stays eager's.
"""


_PLAN_PAYS = 2**25
"""From so many bytes of keys and values on, one query has cuDNN's kernel, with a mask and the plan that it makes.

For 48 sequences of 8 heads with 1,025 keys of width 64 (101 MB) the memory-efficient kernel takes 82 µs on an H100,
cuDNN's 42: its plan is paid back by as many calls as a text has tokens.
"""


def _prepared(emit: Emitter, query: Padded, key: Padded, value: Padded, causal: bool) -> tuple[Padded, Padded]:
    """Keys and values whose padding is 0.

    Raises: Refuse where dimensions do not fit, or a causal mask does not hide the padded keys.
    """
    for each in (key, value):
        need_agreement(query.axes[0], each.axes[0])
        if is_padded(query.axes[1]) or is_padded(each.axes[1]):  # else there may be fewer heads of keys
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


def _mask(emit: Emitter, query: Padded, keys: Axis, given: Padded | None) -> Handle | None:
    """What is added to the scores: minus infinity for padded keys, the given mask for others.

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


def _need_mask(query: Padded, keys: Axis, mask: Padded) -> None:
    broadcast_axes([mask.axes, (*query.axes[:3], keys)[-mask.ndim :]])
    if is_padded(keys) and mask.axes[-1] and not agree(mask.axes[-1], keys):
        raise Refuse("the mask is padded otherwise than the keys", *mask.sizes)


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
    key, value = _prepared(emit, query, key, value, is_causal)
    if attn_mask is not None:
        _need_mask(query, key.axes[2], attn_mask)
    mask = (attn_mask and attn_mask.tensor) if is_causal else _mask(emit, query, key.axes[2], attn_mask)
    out, logsumexp = emit.call(
        emit.op, query.tensor, key.tensor, value.tensor, dropout_p, is_causal, attn_mask=mask, scale=scale
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
    """The gradients of query, key and value: padded queries add 0 to those of keys, and padded keys weigh nothing."""
    key, value = _prepared(emit, query, key, value, is_causal)
    for each in (grad_out, out, logsumexp):
        for own, other in zip(each.axes[:3], query.axes[:3], strict=True):
            need_agreement(own, other)
    rows = [masked(emit, each, 0, {2}).tensor for each in (grad_out, query, out, logsumexp)]
    if attn_mask is not None:
        _need_mask(query, key.axes[2], attn_mask)
        attn_mask = masked(emit, attn_mask, 0, {attn_mask.ndim - 2})
    mask = (attn_mask and attn_mask.tensor) if is_causal else _mask(emit, query, key.axes[2], attn_mask)
    gradient, queries, result, total = rows
    made = emit.call(
        emit.op,
        *(gradient, queries, key.tensor, value.tensor, result, total, dropout_p, is_causal),
        attn_mask=mask,
        scale=scale,
    )
    pairs = zip(made, (query, key, value), strict=True)
    return tuple(Padded(each, given.axes) for each, given in pairs)  # type: ignore[return-value]


def fused_on_device(
    emit: Emitter, query: Padded, key: Padded, value: Padded, *args: Any, **kwargs: Any
) -> tuple[Any, ...]:
    """The fused kernels of devices; only their first result is valid.

    Padded keys are hidden by the causal mask, or by one that is added to the scores: on CUDA by the memory-efficient
    kernel (flash attention takes no mask, and cuDNN's kernel makes a plan), or by cuDNN's where its plan pays, by the
    kernel itself elsewhere.  Over few keys flash attention stands in for cuDNN's where there is no mask.

    Raises: Refuse for a causal mask with padded keys that are not as many as the queries.
    """
    if query.ndim != 4:
        raise Refuse("attention without a dimension of heads", *query.sizes)
    names = [argument.name for argument in emit.op._schema.arguments]
    given = dict(zip(names[3:], args, strict=False)) | kwargs
    causal, bias = bool(given.get("is_causal", False)), given.get("attn_bias")
    key, value = _prepared(emit, query, key, value, causal)
    if bias is not None:
        _need_mask(query, key.axes[2], bias)
    elsewhere = "overrideable" in emit.op._schema.name
    if is_padded(key.axes[2]):
        if causal:  # kernels align it differently for other numbers of queries
            need_agreement(query.axes[2], key.axes[2])
        elif given.get("dropout_p"):
            raise Refuse("attention with dropout", *key.sizes)
        elif not elsewhere and not _plan_pays(emit, query, key, value):
            return _efficient(emit, query, key, value, given)
    hidden = is_padded(key.axes[2]) and not causal
    if not hidden and _needs_no_plan(emit, query, key, value, given):
        op, rest = _FLASH, (0.0, causal, False)
        made = emit.call(op, query.tensor, key.tensor, value.tensor, *rest, scale=given.get("scale"))
        return (_result(made[0], query, value), *(None for _ in emit.results[1:]))
    plain = {name: each.tensor if isinstance(each, Padded) else each for name, each in given.items()}
    if not causal and (elsewhere or hidden or bias is not None):
        plain["attn_bias"] = _added(emit, query, key, bias)
    positional = [plain.pop(name) for name in names[3 : 3 + len(args)]]
    made = emit.call(emit.op, query.tensor, key.tensor, value.tensor, *positional, **plain)
    return (_result(made[0], query, value), *(None for _ in made[1:]))


def _plan_pays(emit: Emitter, query: Padded, key: Padded, value: Padded) -> bool:
    """Whether one query meets so many keys and values that cuDNN's kernel is worth its plan."""
    specs = [each.tensor.spec for each in (key, value)]
    _, heads, rows, width = query.tensor.spec.sizes
    alike = all(spec.sizes[1] == heads and spec.sizes[3] == width for spec in specs)
    if emit.op is not _CUDNN or rows != 1 or width > 128 or not alike:
        return False  # others were not tried
    return bool(sum(math.prod(spec.sizes) * spec.dtype.itemsize for spec in specs) >= _PLAN_PAYS)


def _needs_no_plan(emit: Emitter, query: Padded, key: Padded, value: Padded, given: dict[str, Any]) -> bool:
    """Whether flash attention computes what cuDNN's kernel would, and takes it as it lies in memory."""
    if emit.op is not _CUDNN or given.get("attn_bias") is not None or given.get("dropout_p"):
        return False
    (_, _, rows, width), (_, heads, keys, _) = query.tensor.spec.sizes, key.tensor.spec.sizes
    specs = [each.tensor.spec for each in (query, key, value)]
    alike = all(spec.sizes[3] == width and spec.strides[3] == 1 for spec in specs)
    square = rows == keys and agree(query.axes[2], key.axes[2])
    if not alike or width % 8 or width > 256 or heads != specs[0].sizes[1] or heads != specs[2].sizes[1]:
        return False
    return bool(keys <= _PLANS_PAY and (square or not given.get("is_causal")))


def _result(tensor: Handle, query: Padded, value: Padded) -> Padded:
    """What attention answers: rows of queries, as wide as those of values."""
    return Padded(tensor, (*query.axes[:3], value.axes[3]))


def _efficient(
    emit: Emitter, query: Padded, key: Padded, value: Padded, given: dict[str, Any]
) -> tuple[Padded | None, ...]:
    """The memory-efficient kernel of CUDA with a mask."""
    added = _added(emit, query, key, given.get("attn_bias"))
    op = _aten._scaled_dot_product_efficient_attention.default
    made = emit.call(op, query.tensor, key.tensor, value.tensor, added, False, scale=given.get("scale"))
    return (_result(made[0], query, value), *(None for _ in emit.results[1:]))


def _added(emit: Emitter, query: Padded, key: Padded, bias: Padded | None) -> Handle | None:
    """What is added to all scores, whose rows lie 16 elements aligned, as kernels on CUDA want them."""
    mask = _mask(emit, query, key.axes[2], bias and bias.with_(tensor=_folded(emit, bias.tensor)))
    if mask is None:
        return None
    keys = capacity_of(key.axes[2])
    if mask.spec.dtype is not query.dtype:
        mask = emit.call(_aten._to_copy.default, mask, dtype=query.dtype)
    if mask.spec.sizes[-1:] != (keys,):
        mask = emit.call(_aten.expand.default, mask, [*mask.spec.sizes[:-1], keys])
    if keys % 16 or tuple(mask.spec.strides) != contiguous_strides(mask.spec.sizes):
        wide = emit.call(_aten.constant_pad_nd.default, mask, [0, -keys % 16], 0)
        mask = emit.call(_aten.slice.Tensor, wide, -1, 0, keys)
    made: Handle = emit.call(_aten.expand.default, mask, [*map(capacity_of, query.axes[:3]), keys])
    return made


def _folded(emit: Emitter, tensor: Handle) -> Handle:
    """A tensor with size 1 where it repeats itself in memory."""
    for dim, (size, stride) in enumerate(zip(tensor.spec.sizes, tensor.spec.strides, strict=True)):
        if stride == 0 and size != 1:
            tensor = emit.call(_aten.slice.Tensor, tensor, dim, 0, 1)
    return tensor
