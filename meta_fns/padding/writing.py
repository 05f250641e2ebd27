"""Writing to a part of a padded tensor: what an index or a range names gets new elements, all else stays.

Only valid elements are ever written to valid places.  Where the number of places is padded, the places beyond the true
number are rows of a spare position behind the tensor, which is dropped; what eager refuses stays out of range.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core.dims import wrap_dim
from meta_fns.core.sizes import Size, known, same
from meta_fns.padding.axes import Axis, capacity, capacity_of, is_padded, normal, padded_sizes, prefix, varies
from meta_fns.padding.broadcasting import broadcast_axes, need_agreement
from meta_fns.padding.fills import GARBAGE
from meta_fns.padding.padded import Emitter, Handle, Padded
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import index_in, masked, number, positions, take
from meta_fns.padding.slicing import from_start

__all__ = ["index_copy", "index_put", "select_scatter", "slice_scatter"]

_aten = torch.ops.aten


def index_copy(emit: Emitter, self: Padded, dim: int, index: Padded, source: Padded) -> Padded:
    """Slices of ``source`` at positions of one dimension."""
    if not self.ndim or index.ndim != 1 or source.ndim != self.ndim:
        raise Refuse("an index_copy of or by a scalar")
    at = wrap_dim(dim, self.ndim)
    _need_like(self, source, at)
    need_agreement(index.axes[0], source.axes[at])
    tensor = self.tensor
    if is_padded(index.axes[0]):
        places = _or_spare(emit, index, self.axes[at], wraps=False)
        tensor = emit.call(emit.op, _with_spare(emit, self, at), at, places, source.tensor)
        tensor = emit.call(_aten.slice.Tensor, tensor, at, 0, capacity_of(self.axes[at]), 1)
    else:
        places = index_in(emit, index, self.axes[at], wraps=False).tensor
        tensor = emit.call(emit.op, tensor, at, places, source.tensor)
    return _written(self, tensor, source)


def index_put(
    emit: Emitter, self: Padded, indices: Sequence[Padded | None], values: Padded, accumulate: bool = False
) -> Padded:
    """Values at the positions that indices of some dimensions name, broadcast together."""
    given = [(dim, each) for dim, each in enumerate(indices) if each is not None]
    dims = [dim for dim, _ in given]
    if not dims or self.ndim < len(indices):
        raise Refuse("an index_put without an index")
    read = broadcast_axes([each.axes for _, each in given])
    rest = [axis for dim, axis in enumerate(self.axes) if dim not in dims]
    at = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    target = (*rest[:at], *read, *rest[at:])
    _need_to_fit(values, target)
    places: list[Handle | None] = [
        None if each is None else index_in(emit, each, self.axes[dim], wraps=True).tensor
        for dim, each in enumerate(indices)
    ]
    tensor = self.tensor
    if any(map(is_padded, read)):
        dim, first = given[0]
        whole = emit.call(_aten.expand.default, first.tensor, list(map(capacity_of, read)))
        places[dim] = _or_spare(emit, Padded(whole, read, first.fill), self.axes[dim], wraps=True)
        tensor = emit.call(emit.op, _with_spare(emit, self, dim), places, values.tensor, accumulate)
        tensor = emit.call(_aten.slice.Tensor, tensor, dim, 0, capacity_of(self.axes[dim]), 1)
    else:
        tensor = emit.call(emit.op, tensor, places, values.tensor, accumulate)
    made = _written(self, tensor, values)
    return made.with_(fill=GARBAGE, valid=GARBAGE) if accumulate else made


def slice_scatter(
    emit: Emitter,
    self: Padded,
    src: Padded,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> Padded:
    """``src`` at the positions ``start, start + step, …`` of one dimension."""
    at = wrap_dim(dim, self.ndim)
    _need_like(self, src, at)
    whole, kept = prefix(self.axes[at]), prefix(src.axes[at])
    if varies(step):
        raise Refuse("a step that depends on the sizes", step)
    if step == 1 and same(kept, whole):
        return src
    first: Size = 0 if start is None else start
    if not varies(first) or step != 1 or not known(first >= 0):
        first = from_start(first, whole, kept, int(step))  # else as many are written as the slice has: they fit
    if not varies(first) and not varies(kept):
        if not kept:
            return self
        stop = first + (kept - 1) * step + 1
        if stop > capacity_of(self.axes[at]):
            raise Refuse(f"a slice to {stop} leaves the {capacity_of(self.axes[at])} positions that there are", whole)
        return _written(
            self, emit.call(_aten.slice_scatter.default, self.tensor, src.tensor, at, first, stop, step), src
        )
    if step != 1:
        raise Refuse("a slice with a step from or to a position that depends on the sizes", first, kept)
    return _written(self, _put_range(emit, self, src, at, first, kept), src)


def _put_range(emit: Emitter, self: Padded, src: Padded, dim: int, first: Size, kept: Size) -> Handle:
    """``src`` from a position on, as many of its positions as are valid; both may be known at run time only."""
    n, m = capacity_of(self.axes[dim]), capacity(kept)
    if not m:
        return self.tensor
    place = positions(emit, n, self.device)
    if varies(first):
        place = emit.call(_aten.sub.Tensor, place, emit.size(first))
    elif first:
        place = emit.call(_aten.sub.Tensor, place, number(emit, int(first), Padded(place, (normal((n,)),))))
    end = emit.size(kept) if varies(kept) else number(emit, int(kept), Padded(place, (normal((n,)),)))
    inside = emit.call(
        _aten.bitwise_and.Tensor, emit.call(_aten.ge.Scalar, place, 0), emit.call(_aten.lt.Tensor, place, end)
    )
    moved = take(emit, src, dim, emit.call(_aten.clamp.default, place, 0, m - 1))
    emit.repaired(f"mask: written from {first} on, {kept} positions", first, kept)
    return _where_along(emit, self, dim, inside, moved)


def select_scatter(emit: Emitter, self: Padded, src: Padded, dim: int, index: Size) -> Padded:
    """``src`` at one position of a dimension."""
    at = wrap_dim(dim, self.ndim)
    whole = prefix(self.axes[at])
    if not varies(index) and index < 0:
        index = whole + index
    one = src.with_(
        tensor=emit.call(_aten.unsqueeze.default, src.tensor, at), axes=(*src.axes[:at], (), *src.axes[at:])
    )
    _need_like(self, one, at)
    if (varies(index) or varies(whole)) and not (known(index < whole) and known(index >= 0)):
        raise Refuse(f"whether there is a position {index} depends on the sizes", index, whole)
    if not varies(index):
        return _written(self, emit.call(_aten.select_scatter.default, self.tensor, src.tensor, at, index), one)
    place = positions(emit, capacity_of(self.axes[at]), self.device)
    inside = emit.call(_aten.eq.Tensor, place, emit.size(index))
    emit.repaired(f"mask: written at {index}", index)
    return _written(self, _where_along(emit, self, at, inside, one.tensor), one)


def _where_along(emit: Emitter, self: Padded, dim: int, inside: Handle, moved: Handle) -> Handle:
    """``moved`` where a mask over one dimension holds, else ``self``."""
    shape = [1] * dim + [capacity_of(self.axes[dim])] + [1] * (self.ndim - dim - 1)
    made: Handle = emit.call(_aten.where.self, emit.call(_aten.view.default, inside, shape), moved, self.tensor)
    return made


def _written(self: Padded, tensor: Handle, source: Padded) -> Padded:
    """``self`` with other elements among its own: padding that is written is written from anything in the source."""
    joined = self.fill.join(source.fill).join(source.valid)
    return self.with_(tensor=tensor, fill=joined, valid=self.valid.join(source.valid))


def _need_like(self: Padded, source: Padded, dim: int) -> None:
    """Raises: Refuse unless the other dimensions have their valid positions at the same places."""
    for place, (own, other) in enumerate(zip(self.axes, source.axes, strict=True)):
        if place != dim:
            need_agreement(own, other)


def _need_to_fit(values: Padded, target: tuple[Axis, ...]) -> None:
    """Raises: Refuse unless values broadcast to what is written with padding at the same places."""
    if values.ndim > len(target):
        raise Refuse("values of more dimensions than what is written", *values.sizes)
    for own, axis in zip(reversed(values.axes), reversed(target), strict=False):
        if own:
            need_agreement(own, axis)


def _with_spare(emit: Emitter, self: Padded, dim: int) -> Handle:
    """The tensor in memory with one more position at the end of a dimension."""
    sizes = list(map(capacity_of, self.axes))
    sizes[dim] = 1
    spare = emit.call(_aten.zeros.default, sizes, dtype=self.dtype, device=self.device)
    made: Handle = emit.call(_aten.cat.default, [self.tensor, spare], dim)
    return made


def _or_spare(emit: Emitter, index: Padded, axis: Axis, *, wraps: bool) -> Handle:
    """Indices into a dimension with a spare position: padding names that one, what eager refuses none."""
    n = capacity_of(axis)
    found = index_in(emit, index, axis, wraps=wraps)
    tensor = found.tensor
    if wraps and not is_padded(axis):
        wrapped = emit.call(_aten.add.Tensor, tensor, number(emit, n, index))
        tensor = emit.call(_aten.where.self, emit.call(_aten.lt.Scalar, tensor, 0), wrapped, tensor)
    inside = emit.call(
        _aten.bitwise_and.Tensor, emit.call(_aten.ge.Scalar, tensor, 0), emit.call(_aten.lt.Scalar, tensor, n)
    )
    tensor = emit.call(_aten.where.self, inside, tensor, number(emit, n + 1, index))
    emit.repaired("index: padding goes to a position that is dropped", *padded_sizes(index.axes))
    return masked(emit, index.with_(tensor=tensor, fill=GARBAGE), n).tensor
