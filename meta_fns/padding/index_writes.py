"""Writing into padded tensors by index or slice: what padding would write goes nowhere.

An index that has padding is sent to a position beyond the tensor, which is there for the op alone
and cut off again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.dims import wrap_dim
from meta_fns.core.sizes import Size, known, same
from meta_fns.padding.axes import agree, capacity, capacity_of, padded_sizes, prefix, varies
from meta_fns.padding.broadcasting import broadcast_axes, need_agreement
from meta_fns.padding.padded import Emitter, Handle, Padded, apply, lowered
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import compacted, index_in, looked_at, masked, number, positions, take
from meta_fns.padding.slicing import from_start

__all__ = ["along_index", "index_put", "scatter", "select_scatter", "slice_scatter"]

_aten = torch.ops.aten


def _target(emit: Emitter, index: Padded, size: Size, *, wraps: bool) -> Padded:
    """Indices into a dimension with one more position at its capacity, where those of padding go.

    What eager refuses is sent beyond that, where the op refuses it too.
    """
    if index.dtype not in (torch.int64, torch.int32):
        raise Refuse(f"an index of {index.dtype} selects by its values", *index.sizes)
    tensor, end = index.tensor, emit.size(size)
    if wraps:
        negative = emit.call(_aten.lt.Scalar, tensor, 0)
        tensor = emit.call(
            _aten.where.self, negative, emit.call(_aten.add.Tensor, tensor, end), tensor
        )
    inside = emit.call(
        _aten.bitwise_and.Tensor,
        emit.call(_aten.ge.Scalar, tensor, 0),
        emit.call(_aten.lt.Tensor, tensor, end),
    )
    beyond = number(emit, capacity(size) + 1, index)
    tensor = emit.call(_aten.where.self, inside, tensor, beyond)
    return masked(emit, index.with_(tensor=tensor), capacity(size))


def _widened(emit: Emitter, x: Padded, dims: Sequence[int]) -> Handle:
    """``x`` with one more position behind each of these dimensions."""
    amounts = [1 if x.ndim - 1 - i // 2 in dims and i % 2 else 0 for i in range(2 * x.ndim)]
    made: Handle = emit.call(_aten.constant_pad_nd.default, x.tensor, amounts, 0)
    return made


def _cut(emit: Emitter, tensor: Handle, x: Padded, dims: Sequence[int]) -> Handle:
    for dim in dims:
        tensor = emit.call(_aten.slice.Tensor, tensor, dim, 0, capacity_of(x.axes[dim]))
    return tensor


def _written(emit: Emitter, x: Padded, tensor: Handle, *indices: Padded) -> Padded:
    sizes = [size for each in indices for size in each.sizes]
    if sizes:
        emit.repaired(f"index: padding of {', '.join(map(str, sizes))} writes nowhere", *sizes)
    return Padded(tensor, x.axes)


def scatter(
    emit: Emitter, self: Padded, dim: int, index: Padded, *rest: Any, **kwargs: Any
) -> Padded:
    """``scatter`` and its kin: for each position of the index, one of ``self`` along ``dim`` is
    written.
    """
    if self.ndim != index.ndim or not self.ndim:
        raise Refuse("a scatter into or by a scalar", *self.sizes, *index.sizes)
    at = wrap_dim(dim, self.ndim)
    self = compacted(emit, self, at)
    _need_covered(index, self, at)
    if rest and isinstance(rest[0], Padded):
        _need_covered(index, rest[0], -1)
    plain = [lowered(each) for each in rest]
    if not index.sizes:
        found = index_in(emit, index, self.axes[at], wraps=False)
        return Padded(apply(emit, self, at, found, *rest, **kwargs), self.axes)
    found = _target(emit, index, prefix(self.axes[at]), wraps=False)
    made = emit.call(emit.op, _widened(emit, self, [at]), at, found.tensor, *plain, **kwargs)
    return _written(emit, self, _cut(emit, made, self, [at]), index)


def _need_covered(index: Padded, other: Padded, skip: int) -> None:
    """Raise Refuse where the index reaches beyond another tensor in memory, or lies otherwise than
    it.
    """
    for i, (own, axis) in enumerate(zip(index.axes, other.axes, strict=True)):
        if i == skip:
            continue
        if not agree(own, axis) and max(len(own), len(axis)) > 1:
            raise Refuse("dimensions are merged differently", *padded_sizes((own, axis)))
        if capacity_of(own) > capacity_of(axis):
            raise Refuse("an index reaches beyond the tensor in memory", *padded_sizes((own, axis)))


def along_index(
    emit: Emitter, self: Padded, dim: int, index: Padded, source: Any, *rest: Any, **kwargs: Any
) -> Padded:
    """``index_add``, ``index_copy``, ``index_fill`` and their kin: slices of ``self`` at an index
    are written.
    """
    if not self.ndim or index.ndim != 1:
        raise Refuse("an index_add into or by a scalar", *self.sizes, *index.sizes)
    at = wrap_dim(dim, self.ndim)
    self = compacted(emit, self, at)
    if isinstance(source, Padded) and source.ndim:
        need_agreement(source.axes[at], index.axes[0])
        for i, (own, other) in enumerate(zip(self.axes, source.axes, strict=True)):
            if i != at:
                need_agreement(own, other)
    index = looked_at(emit, index, (*self.axes[:at], *self.axes[at + 1 :]))
    if not index.sizes:
        found = index_in(emit, index, self.axes[at], wraps="fill" in emit.op._schema.name)
        return Padded(apply(emit, self, at, found, source, *rest, **kwargs), self.axes)
    found = _target(emit, index, prefix(self.axes[at]), wraps="fill" in emit.op._schema.name)
    plain = map(lowered, (source, *rest))
    made = emit.call(emit.op, _widened(emit, self, [at]), at, found.tensor, *plain, **kwargs)
    return _written(emit, self, _cut(emit, made, self, [at]), index)


def index_put(
    emit: Emitter,
    self: Padded,
    indices: Sequence[Padded | None],
    values: Padded,
    accumulate: bool = False,
) -> Padded:
    """``self[i, j, :, …] = values``, or ``+= values``."""
    given = [(dim, each) for dim, each in enumerate(indices) if each is not None]
    if any(each.dtype in (torch.bool, torch.uint8) for _, each in given):
        return _where(emit, self, given, values, accumulate)
    dims = [dim for dim, _ in given]
    for dim in dims:
        self = compacted(emit, self, dim)
    read = broadcast_axes([each.axes for _, each in given])
    rest = [axis for dim, axis in enumerate(self.axes) if dim not in dims]
    at = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    wanted = (*rest[:at], *read, *rest[at:])
    broadcast_axes([values.axes, wanted])
    if values.ndim > len(wanted):
        raise Refuse("values have more dimensions than what they are written to", *values.sizes)
    given = [(dim, looked_at(emit, each, wanted)) for dim, each in given]
    wide = [dim for dim, each in given if each.sizes]
    found: list[Handle | None] = [None] * len(indices)
    for dim, each in given:
        made = _target(emit, each, prefix(self.axes[dim]), wraps=True) if each.sizes else None
        found[dim] = (made or index_in(emit, each, self.axes[dim], wraps=True)).tensor
    target = _widened(emit, self, wide) if wide else self.tensor
    tensor = emit.call(emit.op, target, found, values.tensor, accumulate)
    return _written(emit, self, _cut(emit, tensor, self, wide), *(each for _, each in given))


def _where(
    emit: Emitter,
    self: Padded,
    given: Sequence[tuple[int, Padded]],
    values: Padded,
    accumulate: bool,
) -> Padded:
    """One number written where a mask says, which is a choice and no index."""
    (dim, mask), *others = given
    if others or values.ndim or mask.dtype is not torch.bool or accumulate:
        remedy = "write one number where the mask says: masked_fill, torch.where"
        raise Refuse(
            "how many values are written depends on the data",
            *mask.sizes,
            *self.sizes,
            remedy=remedy,
        )
    shape = [*map(capacity_of, mask.axes), *[1] * (self.ndim - dim - mask.ndim)]
    for own, other in zip(self.axes[dim:], mask.axes, strict=False):
        need_agreement(own, other)
    chosen = emit.call(_aten.view.default, mask.tensor, shape)
    return Padded(emit.call(_aten.where.self, chosen, values.tensor, self.tensor), self.axes)


def slice_scatter(
    emit: Emitter,
    self: Padded,
    src: Padded,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> Padded:
    """A copy of ``self`` with ``src`` in its slice."""
    at = wrap_dim(dim, self.ndim)
    for i, (own, other) in enumerate(zip(self.axes, src.axes, strict=True)):
        if i != at:
            need_agreement(own, other)
    whole, kept = prefix(self.axes[at]), prefix(src.axes[at])
    if varies(step):
        raise Refuse("a step that depends on the sizes", step)
    if step == 1 and same(kept, whole):
        return src
    first: Size = 0 if start is None else start
    if not varies(first) or not known(first >= 0):
        first = from_start(first, whole, kept, int(step))
    if not varies(first) and not varies(kept):
        return _at_constants(emit, self, src, at, int(first), int(kept), int(step))
    place = emit.call(
        _aten.sub.Tensor, positions(emit, capacity_of(self.axes[at]), self.device), emit.size(first)
    )
    inside = emit.call(_aten.ge.Scalar, place, 0)
    if step != 1:
        whole_steps = emit.call(_aten.eq.Scalar, emit.call(_aten.remainder.Scalar, place, step), 0)
        inside = emit.call(_aten.bitwise_and.Tensor, inside, whole_steps)
        place = emit.call(_aten.div.Tensor_mode, place, step, rounding_mode="floor")
    inside = emit.call(
        _aten.bitwise_and.Tensor, inside, emit.call(_aten.lt.Tensor, place, emit.size(kept))
    )
    emit.repaired(
        f"mask: written from {first} on, {kept} positions",
        *padded_sizes((self.axes[at], src.axes[at])),
    )
    return _chosen(emit, self, src, at, inside, place)


def _at_constants(
    emit: Emitter, x: Padded, src: Padded, dim: int, first: int, kept: int, step: int
) -> Padded:
    """``src`` in a slice whose place does not depend on the sizes."""
    if not kept:
        return x
    stop = first + (kept - 1) * step + 1
    if stop > capacity_of(x.axes[dim]):
        raise Refuse(
            f"a slice to {stop} leaves the {capacity_of(x.axes[dim])} positions that there are",
            *x.sizes,
        )
    tensor = emit.call(_aten.slice_scatter.default, x.tensor, src.tensor, dim, first, stop, step)
    return x.with_(tensor=tensor, valid=x.valid.join(src.valid), fill=x.fill.join(src.fill))


def select_scatter(emit: Emitter, self: Padded, src: Padded, dim: int, index: Size) -> Padded:
    """A copy of ``self`` with ``src`` at one position of a dimension."""
    at = wrap_dim(dim, self.ndim)
    whole = prefix(self.axes[at])
    for own, other in zip((*self.axes[:at], *self.axes[at + 1 :]), src.axes, strict=True):
        need_agreement(own, other)
    if not varies(index) and index < 0:
        index = whole + index
    if not (known(index >= 0) and known(index < whole) if varies(index) or varies(whole) else True):
        raise Refuse(f"whether there is a position {index} depends on the sizes", *self.sizes)
    if not varies(index):
        tensor = emit.call(_aten.select_scatter.default, self.tensor, src.tensor, at, index)
        return self.with_(
            tensor=tensor, valid=self.valid.join(src.valid), fill=self.fill.join(src.fill)
        )
    place = positions(emit, capacity_of(self.axes[at]), self.device)
    inside = emit.call(_aten.eq.Tensor, place, emit.size(index))
    emit.repaired(f"mask: written at {index}", index)
    one = src.with_(
        tensor=emit.call(_aten.unsqueeze.default, src.tensor, at),
        axes=(*src.axes[:at], (), *src.axes[at:]),
    )
    zero = emit.call(_aten.mul.Tensor, place, 0)
    return _chosen(emit, self, one, at, inside, zero)


def _chosen(
    emit: Emitter, x: Padded, src: Padded, dim: int, inside: Handle, place: Handle
) -> Padded:
    """``src`` at positions ``place`` of a dimension where ``inside``, else ``x``."""
    last = capacity_of(src.axes[dim]) - 1
    if last < 0:
        return x
    spread = take(emit, src, dim, emit.call(_aten.clamp.default, place, 0, last))
    mask = emit.call(_aten.view.default, inside, [-1, *[1] * (x.ndim - dim - 1)])
    tensor = emit.call(_aten.where.self, mask, spread, x.tensor)
    return x.with_(tensor=tensor, fill=x.fill.join(src.fill), valid=x.valid.join(src.valid))
