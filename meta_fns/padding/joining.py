"""Padded tensors put together: behind each other, beside each other, with a margin."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch

from meta_fns.core.dims import wrap_dim
from meta_fns.core.sizes import Size, known
from meta_fns.padding.axes import Axis, capacity, capacity_of, is_padded, normal, prefix, varies
from meta_fns.padding.broadcasting import need_agreement
from meta_fns.padding.fills import Fill, constant, holds
from meta_fns.padding.padded import Emitter, Handle, Padded, apply, lowered
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import compacted, masked, positions

__all__ = ["cat", "margin", "stack"]

_aten = torch.ops.aten


def cat(emit: Emitter, tensors: Sequence[Padded], dim: int = 0) -> Padded:
    """Tensors behind each other; padding between two of them is closed by reading at positions
    known at run time.
    """
    spec = emit.results[0]
    assert spec is not None
    whole = [each for each in tensors if not _left_out(each, len(spec.sizes))]
    if len(whole) != len(tensors):  # caches begin as empty vectors
        return cat(emit, whole or tensors[:1], dim)
    at = wrap_dim(dim, tensors[0].ndim)
    axes = list(tensors[0].axes)
    for each in tensors[1:]:
        for i, axis in enumerate(each.axes):
            if i != at:
                need_agreement(axes[i], axis)
    tensors = [compacted(emit, each, at) for each in tensors]
    along = [each.axes[at] for each in tensors]
    axes[at] = normal((spec.sizes[at],))
    tensor = apply(emit, tensors, at)
    if capacity_of(axes[at]) != sum(map(capacity_of, along)):
        raise Refuse(
            f"a size of {spec.sizes[at]} has another capacity than its parts", *each_padded(along)
        )
    fill = _joined([each.fill for each in tensors])
    if any(map(is_padded, along[:-1])):
        tensor = _closed(emit, tensor, at, along)
        fill = _joined([fill, *(each.valid for each in tensors)])
    return Padded(tensor, tuple(axes), fill, _joined([each.valid for each in tensors]))


def _left_out(x: Padded, ndim: int) -> bool:
    """Return whether ``x`` is an empty vector among tensors of other dimensions, which ``cat``
    leaves out.
    """
    return x.ndim == 1 and ndim != 1 and capacity_of(x.axes[0]) == 0


def each_padded(along: Sequence[Axis]) -> list[Size]:
    """The padded sizes of these axes."""
    return [size for axis in along for size in axis if varies(size)]


def _joined(fills: Sequence[Fill]) -> Fill:
    return reduce(Fill.join, fills)


def _closed(emit: Emitter, tensor: Handle, dim: int, along: Sequence[Axis]) -> Handle:
    """Read past the padding of each part: where the parts before are over, positions move on by
    what they lack.
    """
    total = sum(map(capacity_of, along))
    place = positions(emit, total, tensor.spec.device)
    index = place
    end: Size = 0
    for axis in along[:-1]:
        size = prefix(axis)
        end = end + size
        if not varies(size):
            continue
        over = emit.call(_aten.ge.Tensor, place, emit.size(end)) if varies(end) else None
        assert over is not None
        lacking = emit.call(_aten.rsub.Scalar, emit.size(size), capacity(size))
        index = emit.call(_aten.add.Tensor, index, emit.call(_aten.mul.Tensor, over, lacking))
    index = emit.call(_aten.clamp.default, index, None, total - 1)
    emit.repaired(
        f"gather: past the padding of {', '.join(str(prefix(axis)) for axis in along[:-1])}",
        *each_padded(along[:-1]),
    )
    made: Handle = emit.call(_aten.index_select.default, tensor, dim, index)
    return made


def stack(emit: Emitter, tensors: Sequence[Padded], dim: int = 0) -> Padded:
    """Tensors beside each other in a new dimension."""
    first = tensors[0]
    for each in tensors[1:]:
        for a, b in zip(first.axes, each.axes, strict=True):
            need_agreement(a, b)
    at = wrap_dim(dim, first.ndim + 1)
    axes = (*first.axes[:at], normal((len(tensors),)), *first.axes[at:])
    fill, valid = (
        _joined([each.fill for each in tensors]),
        _joined([each.valid for each in tensors]),
    )
    return Padded(apply(emit, tensors, at), axes, fill, valid)


def _rounded(value: Any, x: Padded) -> Any:
    """The number that a tensor like ``x`` holds for another one."""
    if type(value) not in (bool, int, float) or holds(x.dtype, value):
        return value
    try:
        return torch.scalar_tensor(value, dtype=x.dtype).item()
    except RuntimeError as error:
        raise Refuse(f"{x.dtype} holds no number like {value}", *x.sizes) from error


def margin(emit: Emitter, self: Padded, pad: Sequence[Size], value: Any = 0) -> Padded:
    """``constant_pad_nd``: padding behind a dimension that gets a margin holds the margin's number
    already.

    A margin behind a dimension may depend on the sizes (fused attention rounds its mask up): in
    memory it reaches to the capacity of the result.  So may what is cut off an end (the gradient of
    that); what lay there is padding then.
    """
    spec = emit.results[0]
    assert spec is not None
    if varies(value):
        raise Refuse("a margin of a number that depends on the sizes", value)
    wide = {self.ndim - 1 - i // 2: i for i, each in enumerate(pad) if varies(each) or each}
    axes = tuple(
        normal((size,)) if dim in wide else self.axes[dim] for dim, size in enumerate(spec.sizes)
    )
    amounts = [0 if varies(each) else int(each) for each in pad]
    cut = False
    for dim in wide:
        before, after = pad[2 * (self.ndim - 1 - dim) : 2 * (self.ndim - dim)]
        prefix(self.axes[dim])
        if varies(before):
            raise Refuse("a margin before a dimension depends on the sizes", before)
        if varies(after) or is_padded(self.axes[dim]):
            if not known(after >= 0):
                if not known(after <= 0):
                    raise Refuse("whether a margin cuts off ends depends on the sizes", *self.sizes)
                cut = True
            amounts[2 * (self.ndim - 1 - dim) + 1] = (
                capacity_of(axes[dim]) - capacity_of(self.axes[dim]) - int(before)
            )
    value = _rounded(value, self)
    filled = masked(emit, self, value, wide)
    tensor = emit.call(_aten.constant_pad_nd.default, filled.tensor, amounts, lowered(value))
    if [capacity_of(axis) for axis in axes] != list(tensor.spec.sizes):
        raise Refuse("a margin that leaves nothing for some sizes", *self.sizes)
    beyond = filled.fill.join(self.valid) if cut else filled.fill
    return Padded(tensor, axes, beyond.join(constant(value)), self.valid.join(constant(value)))
