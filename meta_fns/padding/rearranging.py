"""Positions of padded tensors in another order: reversed, turned, repeated, mirrored at the
ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.dims import wrap_dim, wrap_dims
from meta_fns.core.sizes import Size, known
from meta_fns.padding.axes import (
    Axis,
    agree,
    capacity,
    capacity_of,
    is_padded,
    normal,
    padded_sizes,
    prefix,
    varies,
)
from meta_fns.padding.broadcasting import need_agreement
from meta_fns.padding.fills import GARBAGE, ZERO
from meta_fns.padding.padded import Emitter, Handle, Padded, apply, lowered
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import compacted, flattened, masked, positions, relaid, take

__all__ = [
    "channel_shuffle",
    "diagonal",
    "diagonal_scatter",
    "embedded_diagonal",
    "eye",
    "flip",
    "mirrored",
    "one_hot",
    "pixel_shuffle",
    "pixel_unshuffle",
    "repeat",
    "roll",
    "trace",
]

_aten = torch.ops.aten


def _from_end(emit: Emitter, place: Handle, size: Size) -> Handle:
    """``size - 1 - place``, of the true size."""
    made: Handle = emit.call(
        _aten.sub.Tensor, emit.call(_aten.sub.Tensor, emit.size(size), 1), place
    )
    return made


def _read(emit: Emitter, x: Padded, dim: int, index: Handle, size: Size) -> Padded:
    """Positions of a dimension that may lie outside of it where the result is padding."""
    index = emit.call(_aten.clamp.default, index, 0, max(capacity_of(x.axes[dim]) - 1, 0))
    axes = (*x.axes[:dim], normal((size,)), *x.axes[dim + 1 :])
    return x.with_(tensor=take(emit, x, dim, index), axes=axes, fill=x.fill.join(x.valid))


def flip(emit: Emitter, self: Padded, dims: Sequence[int]) -> Padded:
    """Dimensions reversed: a padded one from its true end on."""
    if not self.ndim:
        return self.with_(tensor=emit.call(_aten.flip.default, self.tensor, list(dims)))
    chosen = wrap_dims(dims, self.ndim)
    plain = [dim for dim in chosen if not is_padded(self.axes[dim])]
    made = self.with_(tensor=emit.call(_aten.flip.default, self.tensor, plain)) if plain else self
    for dim in chosen:
        if is_padded(self.axes[dim]) and capacity_of(self.axes[dim]):
            made = compacted(emit, made, dim)
            size = prefix(made.axes[dim])
            index = _from_end(emit, positions(emit, capacity(size), self.device), size)
            made = _read(emit, made, dim, index, size)
            emit.repaired(f"gather: reversed from {size} on", size)
    return made


def roll(emit: Emitter, self: Padded, shifts: Sequence[Size], dims: Sequence[int] = ()) -> Padded:
    """Dimensions turned round."""
    if not dims:
        if not self.sizes and not any(map(varies, shifts)):
            return self.with_(tensor=apply(emit, self, shifts, dims))
        turned = roll(emit, flattened(emit, self), shifts, (0,))
        axis = normal(size for each in self.axes for size in each)
        flat = relaid(emit, turned, 0, axis)
        shape = list(map(capacity_of, self.axes))
        return flat.with_(
            tensor=emit.call(_aten.reshape.default, flat.tensor, shape), axes=self.axes
        )
    made = self
    for shift, each in zip(shifts, dims, strict=True):  # a dimension may come twice
        dim = wrap_dim(each, self.ndim)
        made = compacted(emit, made, dim)
        size = prefix(made.axes[dim])
        if not varies(size) and not varies(shift):
            made = made.with_(tensor=emit.call(_aten.roll.default, made.tensor, [shift], [dim]))
            continue
        place = emit.call(
            _aten.sub.Tensor, positions(emit, capacity(size), self.device), emit.size(shift)
        )
        index = emit.call(
            _aten.remainder.Tensor, place, emit.call(_aten.clamp.default, emit.size(size), 1)
        )
        made = _read(emit, made, dim, index, size)
        emit.repaired(f"gather: turned by {shift} of {size}", *padded_sizes(((size,),)))
    return made


def repeat(emit: Emitter, self: Padded, repeats: Sequence[Size]) -> Padded:
    """Copies of the whole tensor beside and behind each other."""
    added = len(repeats) - self.ndim
    old: list[Axis] = [()] * added + list(self.axes)
    axes = tuple(normal((times, *axis)) for times, axis in zip(repeats, old, strict=True))
    tensor = emit.call(_aten.repeat.default, self.tensor, list(map(capacity, repeats)))
    fill = self.fill
    if any(map(varies, repeats)):
        fill = self.fill.join(self.valid) if self.sizes else self.valid
    return self.with_(tensor=tensor, axes=axes, fill=fill)


def mirrored(emit: Emitter, self: Padded, padding: Sequence[Size]) -> Padded:
    """``reflection_pad`` and ``replication_pad``: a margin that repeats what lies at the true
    ends.
    """
    spec = emit.results[0]
    assert spec is not None
    axes = list(self.axes)
    made = self
    for i in range(len(padding) // 2):
        dim = self.ndim - 1 - i
        before, after = padding[2 * i], padding[2 * i + 1]
        if varies(before) or varies(after):
            raise Refuse("a margin that depends on the sizes", *self.sizes)
        if not before and not after:
            continue
        size = prefix(self.axes[dim])
        axes[dim] = normal((spec.sizes[dim],))
        place = positions(emit, capacity_of(axes[dim]), self.device)
        place = emit.call(_aten.sub.Tensor, place, before) if before else place
        if "reflection" in emit.op._schema.name:
            back = _from_end(emit, emit.call(_aten.abs.default, place), size)
            place = _from_end(emit, emit.call(_aten.abs.default, back), size)
        last = emit.call(_aten.sub.Tensor, emit.size(size), 1)
        place = emit.call(_aten.minimum.default, emit.call(_aten.clamp.default, place, 0), last)
        made = _read(emit, made, dim, place, spec.sizes[dim])
        emit.repaired(f"gather: mirrored at {size}", *padded_sizes((self.axes[dim],)))
    return made


def pixel_shuffle(emit: Emitter, self: Padded, upscale_factor: int) -> Padded:
    """``(…, c r², h, w) -> (…, c, h r, w r)``."""
    if is_padded(self.axes[-3]):
        raise Refuse("channels are padded", *padded_sizes((self.axes[-3],)))
    channels = capacity_of(self.axes[-3]) // upscale_factor**2
    wide = (normal((*axis, upscale_factor)) for axis in self.axes[-2:])
    axes = (*self.axes[:-3], normal((channels,)), *wide)
    return self.with_(tensor=apply(emit, self, upscale_factor), axes=axes)


def pixel_unshuffle(emit: Emitter, self: Padded, downscale_factor: int) -> Padded:
    """``(…, c, h r, w r) -> (…, c r², h, w)``: blocks of pixels, of which the valid ones come
    first.
    """
    if is_padded(self.axes[-3]):
        raise Refuse("channels are padded", *padded_sizes((self.axes[-3],)))
    channels = capacity_of(self.axes[-3]) * downscale_factor**2
    sides = (prefix(axis) if is_padded(axis) else capacity_of(axis) for axis in self.axes[-2:])
    narrow = (normal((side // downscale_factor,)) for side in sides)
    axes = (*self.axes[:-3], normal((channels,)), *narrow)
    return self.with_(tensor=apply(emit, self, downscale_factor), axes=axes)


def channel_shuffle(emit: Emitter, self: Padded, groups: int) -> Padded:
    """Channels dealt out among groups."""
    if is_padded(self.axes[1]):
        raise Refuse("channels are padded", *padded_sizes((self.axes[1],)))
    return self.with_(tensor=apply(emit, self, groups))


def diagonal(emit: Emitter, self: Padded, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Padded:
    """A diagonal of two dimensions: where it is valid, both are."""
    a, b = wrap_dim(dim1, self.ndim), wrap_dim(dim2, self.ndim)
    padded = is_padded(self.axes[a]) or is_padded(self.axes[b])
    spec = emit.results[0]
    assert spec is not None
    last = normal((spec.sizes[-1],))
    if padded and agree(self.axes[a], self.axes[b]) and not varies(offset) and not offset:
        last = self.axes[a]
    elif padded:
        prefix(self.axes[a]), prefix(self.axes[b])
    tensor = apply(emit, self, offset, a, b)
    if capacity_of(last) != tensor.spec.sizes[-1]:
        raise Refuse("a diagonal is not as long in memory as its formula says", *self.sizes)
    left = tuple(axis for dim, axis in enumerate(self.axes) if dim not in (a, b))
    return self.with_(tensor=tensor, axes=(*left, last))


def diagonal_scatter(
    emit: Emitter, self: Padded, src: Padded, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Padded:
    """A copy of ``self`` with ``src`` on a diagonal: what is padding of it lies in the padding of
    one dimension.
    """
    a, b = wrap_dim(dim1, self.ndim), wrap_dim(dim2, self.ndim)
    left = [axis for dim, axis in enumerate(self.axes) if dim not in (a, b)]
    for own, other in zip(left, src.axes[:-1], strict=True):
        need_agreement(own, other)
    if len(self.axes[a]) > 1 and not agree(self.axes[a], self.axes[b]):
        prefix(self.axes[a])
    tensor = emit.call(
        _aten.diagonal_scatter.default, self.tensor, src.tensor, lowered(offset), a, b
    )
    return self.with_(tensor=tensor, fill=GARBAGE, valid=self.valid.join(src.valid))


def embedded_diagonal(
    emit: Emitter, self: Padded, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Padded:
    """``diag_embed``: square matrices with a diagonal."""
    if not is_padded(self.axes[-1]) and not varies(offset):
        made = apply(emit, self, offset, dim1, dim2)
        last = normal((made.spec.sizes[wrap_dim(dim1, self.ndim + 1)],))
        return _with_square(
            self.with_(tensor=made, fill=self.fill.join(ZERO), valid=GARBAGE), dim1, dim2, last
        )
    if varies(offset) or offset:
        raise Refuse("a diagonal whose length depends on the sizes", *padded_sizes(self.axes[-1:]))
    self = compacted(emit, self, self.ndim - 1)
    made = apply(emit, self, 0, dim1, dim2)
    return _with_square(
        Padded(made, self.axes, self.fill.join(self.valid).join(ZERO)), dim1, dim2, self.axes[-1]
    )


def _with_square(x: Padded, dim1: int, dim2: int, axis: Axis) -> Padded:
    """The axes of a tensor whose last dimension became two."""
    ndim = x.ndim + 1
    axes = list(x.axes[:-1])
    for dim in sorted((wrap_dim(dim1, ndim), wrap_dim(dim2, ndim))):
        axes.insert(dim, axis)
    return x.with_(axes=tuple(axes))


def trace(emit: Emitter, self: Padded) -> Padded:
    """The sum of the diagonal."""
    if not self.sizes:
        return Padded(apply(emit, self), ())
    self = masked(emit, compacted(emit, compacted(emit, self, 0), 1), 0)
    return Padded(emit.call(emit.op, self.tensor), ())


def eye(emit: Emitter, n: Size, m: Size | None = None, **kwargs: Any) -> Padded:
    """Ones on the diagonal of a matrix."""
    spec = emit.results[0]
    assert spec is not None
    sizes = (n, n if m is None else m)
    rows, columns = (positions(emit, capacity(size), spec.device) for size in sizes)
    made = emit.call(_aten.eq.Tensor, emit.call(_aten.unsqueeze.default, rows, 1), columns)
    return Padded(
        emit.call(_aten._to_copy.default, made, dtype=spec.dtype),
        tuple(normal((size,)) for size in sizes),
    )


def one_hot(emit: Emitter, self: Padded, num_classes: Size = -1) -> Padded:
    """A vector with a one at each index."""
    if varies(num_classes) or not known(num_classes >= 1):
        raise Refuse(
            "how many classes there are depends on the data", *self.sizes, remedy="give num_classes"
        )
    found = masked(emit, self, 0)
    return Padded(
        emit.call(emit.op, found.tensor, num_classes), (*self.axes, normal((num_classes,)))
    )
