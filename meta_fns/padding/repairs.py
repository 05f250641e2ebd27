"""Repairs that make an op right on padded tensors: masks, true counts, positions known at run time.

Sizes reach these repairs as 0-d tensors (``Emitter.size``), so one program serves every size up to
the capacities.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from meta_fns.core.sizes import Size, known, same
from meta_fns.padding.axes import (
    Axis,
    agree,
    capacity,
    capacity_of,
    is_padded,
    length,
    normal,
    padded_sizes,
    prefix,
    varies,
)
from meta_fns.padding.fills import FINITE, Fill, constant, holds
from meta_fns.padding.padded import Emitter, Handle, Padded
from meta_fns.padding.refusals import Refuse

__all__ = [
    "compacted",
    "count",
    "flattened",
    "highest",
    "index_in",
    "last_along",
    "looked_at",
    "lowest",
    "masked",
    "number",
    "positions",
    "relaid",
    "take",
    "valid_along",
    "valid_mask",
]

_aten = torch.ops.aten


def number(emit: Emitter, value: bool | int | float, like: Padded) -> Handle:
    """A 0-d tensor of ``like``'s dtype and device."""
    made: Handle = emit.call(
        _aten.scalar_tensor.default, value, dtype=like.dtype, device=like.device
    )
    return made


def positions(emit: Emitter, n: int, device: torch.device) -> Handle:
    """``0 … n - 1`` as int64."""
    made: Handle = emit.call(_aten.arange.default, n, dtype=torch.int64, device=device)
    return made


def valid_along(emit: Emitter, axis: Axis, device: torch.device) -> Handle:
    """Return a mask of the valid positions of one padded dimension: a bool vector as long as its
    capacity.
    """
    found: Handle | None = None
    caps = [capacity(size) for size in axis]
    for place, size in enumerate(axis):
        if not varies(size):
            continue
        shape = [1] * place + [caps[place]] + [1] * (len(caps) - place - 1)
        part = emit.call(_aten.lt.Tensor, positions(emit, caps[place], device), emit.size(size))
        part = emit.call(_aten.view.default, part, shape)
        found = part if found is None else emit.call(_aten.bitwise_and.Tensor, found, part)
    assert found is not None, "a dimension without padding has no mask"
    if len(caps) > 1:
        whole = emit.call(_aten.expand.default, found, caps)
        found = emit.call(_aten.reshape.default, whole, [capacity_of(axis)])
    assert found is not None
    return found


def last_along(emit: Emitter, axis: Axis, device: torch.device) -> Handle:
    """Return a mask of the last valid position of one dimension: a bool vector as long as its
    capacity.
    """
    found: Handle | None = None
    for size in axis or (1,):
        place = positions(emit, capacity(size), device)
        last = emit.call(_aten.sub.Tensor, emit.size(size), 1)
        part = emit.call(_aten.eq.Tensor, place, last)
        if found is not None:
            pairs = emit.call(
                _aten.bitwise_and.Tensor, emit.call(_aten.unsqueeze.default, found, 1), part
            )
            part = emit.call(
                _aten.reshape.default, pairs, [pairs.spec.sizes[0] * pairs.spec.sizes[1]]
            )
        found = part
    assert found is not None
    return found


def valid_mask(
    emit: Emitter, axes: tuple[Axis, ...], dims: Iterable[int], device: torch.device
) -> Handle:
    """Return a mask of the elements that are valid in these dimensions: bool, of size 1 in the
    others.

    One of them is padded.
    """
    found: Handle | None = None
    for dim in sorted(dims):
        if not is_padded(axes[dim]):
            continue
        shape = [1] * dim + [capacity_of(axes[dim])] + [1] * (len(axes) - dim - 1)
        part = emit.call(_aten.view.default, valid_along(emit, axes[dim], device), shape)
        found = part if found is None else emit.call(_aten.bitwise_and.Tensor, found, part)
    assert found is not None
    return found


def masked(
    emit: Emitter, x: Padded, value: bool | int | float, dims: Iterable[int] | None = None
) -> Padded:
    """``x`` with ``value`` at the padding of these dimensions (all of them if not given).

    Raises: Refuse where the dtype does not hold this number exactly.
    """
    padded = x.padded_dims()
    wanted = padded if dims is None else padded & frozenset(dims)
    if not wanted or x.fill.is_constant(value):
        return x
    if type(value) in (bool, int, float) and not holds(x.dtype, value):
        sizes = padded_sizes(x.axes[dim] for dim in wanted)
        raise Refuse(f"padding has to be {value}, which {x.dtype} does not hold", *sizes)
    mask = valid_mask(emit, x.axes, wanted, x.device)
    tensor = emit.call(_aten.where.self, mask, x.tensor, number(emit, value, x))
    where = ", ".join(str(length(x.axes[dim])) for dim in sorted(wanted))
    emit.repaired(f"mask: {value} beyond {where}", *padded_sizes(x.axes[dim] for dim in wanted))
    fill: Fill = constant(value) if wanted == padded else constant(value).join(x.fill)
    return x.with_(tensor=tensor, fill=fill)


def lowest(dtype: torch.dtype) -> bool | int | float:
    """Return a number that is no larger than any element: the identity of ``max``."""
    if dtype is torch.bool:
        return False
    return -math.inf if dtype.is_floating_point else int(torch.iinfo(dtype).min)


def highest(dtype: torch.dtype) -> bool | int | float:
    """Return a number that is no smaller than any element: the identity of ``min``."""
    if dtype is torch.bool:
        return True
    return math.inf if dtype.is_floating_point else int(torch.iinfo(dtype).max)


def count(emit: Emitter, axes: Iterable[Axis]) -> Handle:
    """Return the number of valid positions of these dimensions, as a 0-d int64 tensor."""
    total: Size = 1
    for axis in axes:
        total = total * length(axis)
    emit.repaired(f"divisor: {total}", total)
    return emit.size(total)


def index_in(emit: Emitter, index: Padded, axis: Axis, *, wraps: bool) -> Padded:
    """Indices into a dimension: their padding becomes 0, and what eager refuses stays out of range.

    ``wraps``: negative ones count from the end, the true one.  What is out of range becomes the
    capacity, beyond which nothing is.

    Raises: Refuse for masks, and for a dimension whose valid positions do not come first.
    """
    if index.dtype not in (torch.int64, torch.int32):
        raise Refuse(f"an index of {index.dtype} selects by its values")
    size = prefix(axis)
    if not varies(size) and size == 0 and index.sizes:
        raise Refuse("an index into nothing", *index.sizes)
    if not varies(size):
        return masked(emit, index, 0)
    tensor, end = index.tensor, emit.size(size)
    if wraps:
        wrapped = emit.call(_aten.add.Tensor, tensor, end)
        tensor = emit.call(_aten.where.self, emit.call(_aten.lt.Scalar, tensor, 0), wrapped, tensor)
    inside = emit.call(
        _aten.bitwise_and.Tensor,
        emit.call(_aten.ge.Scalar, tensor, 0),
        emit.call(_aten.lt.Tensor, tensor, end),
    )
    tensor = emit.call(_aten.where.self, inside, tensor, number(emit, capacity(size), index))
    emit.repaired(f"index: counted from {size}", size)
    return masked(emit, index.with_(tensor=tensor, fill=FINITE), 0)


def looked_at(emit: Emitter, index: Padded, axes: Iterable[Axis]) -> Padded:
    """Indices whose results have these axes: 0 where the results have no element, since eager looks
    at no index then.

    ``index_in`` sends what is out of range to where the op refuses it, which is right only if eager
    refuses it, too.
    """
    total: Size = 1
    for axis in axes:
        if any(agree(axis, own) for own in index.axes):
            continue  # without it there is no index either
        for size in axis:
            if not known(size >= 1):
                total = total * size
    if not varies(total):
        return index
    some = emit.call(_aten.gt.Scalar, emit.size(total), 0)
    emit.repaired(f"index: none is looked at where {total} is 0", total)
    tensor = emit.call(_aten.where.self, some, index.tensor, number(emit, 0, index))
    return index.with_(tensor=tensor, fill=index.fill.join(constant(0)))


def compacted(emit: Emitter, x: Padded, dim: int) -> Padded:
    """``x`` with the valid positions of a dimension first, in their order, where it is made of
    several sizes.
    """
    axis = x.axes[dim]
    return x if len(axis) < 2 else _laid(emit, x, dim, normal((length(axis),)))


def flattened(emit: Emitter, x: Padded) -> Padded:
    """``x`` as a vector, its valid elements first and in their order."""
    axis = normal(size for each in x.axes for size in each)
    flat = emit.call(_aten.reshape.default, x.tensor, [capacity_of(axis)])
    return compacted(emit, x.with_(tensor=flat, axes=(axis,)), 0)


def relaid(emit: Emitter, x: Padded, dim: int, axis: Axis) -> Padded:
    """``x`` with the valid positions of a dimension, in their order, where those of another axis
    are.

    Raises: Refuse where the axes are not known to have as many.
    """
    if agree(x.axes[dim], axis):
        return x
    if not same(length(x.axes[dim]), length(axis)):
        text = (
            f"dimensions of {length(x.axes[dim])} and of {length(axis)} are not known to be as long"
        )
        remedy = "torch._check that they are equal"
        raise Refuse(text, *padded_sizes((x.axes[dim], axis)), remedy=remedy)
    # a size that is known to be 1 by the guards, say
    if capacity_of(x.axes[dim]) == capacity_of(axis) == 1:
        return x.with_(axes=(*x.axes[:dim], axis, *x.axes[dim + 1 :]))
    return _laid(emit, x, dim, axis)


def _laid(emit: Emitter, x: Padded, dim: int, wanted: Axis) -> Padded:
    """Position ``p`` of ``h * w`` is row ``p // w``, column ``p % w``, which lies at
    ``row * capacity(w) + column``.
    """
    axis = x.axes[dim]
    rest = _counted(emit, wanted, x.device)
    index: Handle | None = None
    stride = 1
    for place in range(len(axis) - 1, -1, -1):
        column = rest
        if place:
            # nothing is valid where it is 0
            true = emit.call(_aten.clamp.default, emit.size(axis[place]), 1)
            column = emit.call(_aten.remainder.Tensor, rest, true)
            rest = emit.call(_aten.floor_divide.default, rest, true)
        part = emit.call(_aten.mul.Tensor, column, stride)
        index = part if index is None else emit.call(_aten.add.Tensor, index, part)
        stride *= capacity(axis[place])
    if index is None:  # one position, which lies first
        index = emit.call(_aten.mul.Tensor, rest, 0)
    index = emit.call(_aten.clamp.default, index, None, max(capacity_of(axis) - 1, 0))
    lies = "first" if len(wanted) < 2 else f"as those of {' times '.join(map(str, wanted))}"
    emit.repaired(
        f"gather: the valid of {' times '.join(map(str, axis))} {lies}", *padded_sizes((axis,))
    )
    axes = (*x.axes[:dim], wanted, *x.axes[dim + 1 :])
    return x.with_(tensor=take(emit, x, dim, index), axes=axes, fill=x.fill.join(x.valid))


def _counted(emit: Emitter, axis: Axis, device: torch.device) -> Handle:
    """For each position of an axis in memory, how many valid ones come before it (if it is valid
    itself).
    """
    if len(axis) < 2:
        return positions(emit, capacity_of(axis), device)
    found: Handle | None = None
    for size in axis:
        place = positions(emit, capacity(size), device)
        if found is None:
            found = place
            continue
        rows = emit.call(
            _aten.mul.Tensor, emit.call(_aten.unsqueeze.default, found, 1), emit.size(size)
        )
        total = emit.call(_aten.add.Tensor, rows, place)
        found = emit.call(_aten.reshape.default, total, [total.spec.sizes[0] * total.spec.sizes[1]])
    assert found is not None
    return found


def take(emit: Emitter, x: Padded, dim: int, index: Handle) -> Handle:
    """``index_select`` in memory."""
    made: Handle = emit.call(_aten.index_select.default, x.tensor, dim, index)
    return made
