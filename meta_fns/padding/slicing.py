"""Parts of padded tensors: slices, single positions, pieces."""

from __future__ import annotations

from typing import Any

import torch

from meta_fns.core.dims import wrap_dim
from meta_fns.core.sizes import Size, known, same, sym_max
from meta_fns.padding.axes import (
    Axis,
    capacity,
    capacity_of,
    is_padded,
    length,
    normal,
    prefix,
    varies,
)
from meta_fns.padding.padded import Emitter, Padded, apply
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import compacted, positions, take
from meta_fns.padding.views import reshaped

__all__ = ["from_start", "halved", "pieces", "select", "slice_of", "unbind", "windows"]

_aten = torch.ops.aten


def windows(emit: Emitter, self: Padded, dimension: int, size: int, step: int) -> Padded:
    """``unfold``: windows of a dimension in a new last one; those that are valid end before the
    true end.
    """
    spec = emit.results[0]
    assert spec is not None
    if not self.ndim:
        return Padded(
            apply(emit, self, dimension, size, step), ((),) if size == 1 else (normal((size,)),)
        )
    at = wrap_dim(dimension, self.ndim)
    self = compacted(emit, self, at)
    made = apply(emit, self, at, size, step)
    axes = (*self.axes[:at], normal((spec.sizes[at],)), *self.axes[at + 1 :], normal((size,)))
    if list(map(capacity_of, axes)) != list(made.spec.sizes):
        raise Refuse("there are other windows in memory than their formula says", *self.sizes)
    return Padded(made, axes, self.fill.join(self.valid), self.valid)


def slice_of(
    emit: Emitter,
    self: Padded,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> Padded:
    """``self[start:end:step]`` along a dimension: its true size is known, and how many are kept
    follows from it.
    """
    at = wrap_dim(dim, self.ndim)
    axis = self.axes[at]
    spec = emit.results[0]
    assert spec is not None
    kept: Size = spec.sizes[at]
    whole = length(axis)
    if varies(step):
        raise Refuse("a step that depends on the sizes", step)
    if step == 1 and same(kept, whole):
        return self
    self = compacted(emit, self, at)
    axis = self.axes[at]
    first = from_start(0 if start is None else start, whole, kept, step)
    axes = (*self.axes[:at], normal((kept,)), *self.axes[at + 1 :])
    if varies(first):
        tensor = _read_from(emit, self, at, first, capacity(kept))
        if step != 1:
            raise Refuse("a slice with a step from a position that depends on the sizes", first)
    else:
        stop = first + (capacity(kept) - 1) * step + 1 if capacity(kept) else first
        if stop > capacity_of(axis):
            raise Refuse(
                f"a slice to {stop} leaves the {capacity_of(axis)} positions that there are", kept
            )
        tensor = emit.call(_aten.slice.Tensor, self.tensor, at, first, stop, step)
    tail = step == 1 and same(first + kept, whole) and not varies(first) and is_padded(axis)
    fill = self.fill
    if varies(kept) and not tail:  # beyond what is kept there may be valid elements
        fill = self.fill.join(self.valid) if self.sizes else self.valid
    return self.with_(tensor=tensor, axes=axes, fill=fill)


def from_start(start: Size, whole: Size, kept: Size, step: int) -> Size:
    """Return the first position of a slice, counted from the start of the dimension."""
    if not varies(start) and start < 0:
        start = sym_max(whole, -start) + start  # a tensor shorter than that is taken whole
    if not varies(start):
        # beyond the end nothing is kept that could be wrong
        return start if varies(whole) else min(start, whole)
    if step == 1 and known(start >= 0) and known(start + kept <= whole):
        return start
    raise Refuse(f"where a slice from {start} begins is not known", start, kept)


def _read_from(emit: Emitter, x: Padded, dim: int, first: Size, n: int) -> Any:
    """``n`` positions of a dimension from a position known at run time on; its last one again
    beyond the end.
    """
    index = emit.call(_aten.add.Tensor, positions(emit, n, x.device), emit.size(first))
    index = emit.call(_aten.clamp.default, index, None, capacity_of(x.axes[dim]) - 1)
    emit.repaired(f"gather: from {first} on", first)
    return take(emit, x, dim, index)


def select(emit: Emitter, self: Padded, dim: int, index: Size) -> Padded:
    """One position of a dimension; one that counts from the end, or depends on the sizes, is read
    at run time.
    """
    at = wrap_dim(dim, self.ndim)
    self = compacted(emit, self, at)
    whole = prefix(self.axes[at])
    left: tuple[Axis, ...] = (*self.axes[:at], *self.axes[at + 1 :])
    if not varies(index) and index < 0:
        index = whole + index
    if not varies(index):
        if varies(whole) and not known(index < whole):
            raise Refuse(f"whether there is a position {index} depends on the sizes", whole)
        return self.with_(tensor=emit.call(_aten.select.int, self.tensor, at, index), axes=left)
    if not (known(index >= 0) and known(index < whole)):
        raise Refuse(f"whether there is a position {index} depends on the sizes", index)
    place = emit.call(_aten.reshape.default, emit.size(index), [1])
    emit.repaired(f"gather: position {index}", index)
    one = self.with_(
        tensor=take(emit, self, at, place), axes=(*self.axes[:at], (), *self.axes[at + 1 :])
    )
    return reshaped(emit, one, left)


def pieces(emit: Emitter, self: Padded, *args: Any, **kwargs: Any) -> tuple[Padded, ...]:
    """``split`` and its kin along a dimension without padding.

    Raises: Refuse for a padded dimension.
    """
    names = [argument.name for argument in emit.op._schema.arguments]
    dim = dict(zip(names[1:], args, strict=False)).get("dim", kwargs.get("dim", 0))
    at = wrap_dim(dim, self.ndim)
    if is_padded(self.axes[at]):
        remedy = "split a dimension of constant size"
        raise Refuse(
            "where the pieces of a padded dimension begin depends on the sizes",
            *self.axes[at],
            remedy=remedy,
        )
    made = apply(emit, self, *args, **kwargs)
    found = []
    for tensor, spec in zip(made, emit.results, strict=True):
        assert spec is not None
        axes = (*self.axes[:at], normal((tensor.spec.sizes[at],)), *self.axes[at + 1 :])
        found.append(self.with_(tensor=tensor, axes=axes))
    return tuple(found)


def unbind(emit: Emitter, self: Padded, dim: int = 0) -> tuple[Padded, ...]:
    """Each position of a dimension without padding.

    Raises: Refuse for a padded dimension.
    """
    at = wrap_dim(dim, self.ndim)
    if is_padded(self.axes[at]):
        raise Refuse("how many pieces there are depends on the sizes", *self.axes[at])
    axes = (*self.axes[:at], *self.axes[at + 1 :])
    return tuple(self.with_(tensor=tensor, axes=axes) for tensor in apply(emit, self, dim))


def halved(emit: Emitter, self: Padded, dim: int = -1) -> Padded:
    """``glu``: one half of a dimension without padding, weighed by the other.

    Raises: Refuse for a padded dimension.
    """
    at = wrap_dim(dim, self.ndim)
    if is_padded(self.axes[at]):
        raise Refuse(
            "where the second half of a padded dimension begins depends on the sizes",
            *self.axes[at],
        )
    tensor = apply(emit, self, at)
    return Padded(tensor, (*self.axes[:at], normal((tensor.spec.sizes[at],)), *self.axes[at + 1 :]))
