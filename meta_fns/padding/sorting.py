"""Padded tensors in the order of their elements: padding comes last, behind what is equal to it.

An order that is not stable puts equal elements as its algorithm happens to, which depends on how
many there are in memory: their positions are not known.  Their values are eager's but for the sign
of zeros, which are equal, whatever their sign.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from meta_fns.core.dims import wrap_dim
from meta_fns.core.sizes import Size
from meta_fns.padding.axes import Axis, capacity, is_padded, normal, padded_sizes, prefix, varies
from meta_fns.padding.fills import GARBAGE
from meta_fns.padding.padded import Emitter, Padded, apply, lowered
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import compacted, flattened, highest, lowest, masked, number

__all__ = ["histogram", "median", "median_of_all", "sort", "topk"]

_aten = torch.ops.aten


def _sorted(emit: Emitter, x: Padded, dim: int, descending: bool) -> list[Padded]:
    """Values and positions in a stable order, so that of equal elements the valid ones come first.

    NaN counts as larger than every number: rising, padding is NaN itself.
    """
    x = compacted(emit, x, dim)
    if descending:
        last = lowest(x.dtype)
    else:
        last = math.nan if x.dtype.is_floating_point else highest(x.dtype)
    filled = masked(emit, x, last, {dim})
    made = emit.call(_aten.sort.stable, filled.tensor, stable=True, dim=dim, descending=descending)
    return [Padded(each, x.axes) for each in made]


def _of_values(
    emit: Emitter, found: list[Padded], along: Axis, remedy: str
) -> tuple[Padded | Refuse, ...]:
    """Values, and positions that nobody may read."""
    name = emit.op._schema.name.removeprefix("aten::")
    text = f"which of equal elements {name} puts first depends on the size in memory"
    return found[0], Refuse(text, *padded_sizes((along,)), remedy=remedy)


def sort(emit: Emitter, self: Padded, *args: Any, **kwargs: Any) -> tuple[Padded | Refuse, ...]:
    """``sort``, stable or not; where it is not, of a padded dimension the values alone."""
    names = [argument.name for argument in emit.op._schema.arguments]
    given = dict(zip(names[1:], args, strict=False)) | kwargs
    dim = wrap_dim(given.get("dim", -1), self.ndim) if self.ndim else 0
    if self.ndim and is_padded(self.axes[dim]):
        found = _sorted(emit, self, dim, given.get("descending", False))
        return (
            tuple(found)
            if given.get("stable")
            else _of_values(emit, found, self.axes[dim], "stable=True")
        )
    return tuple(Padded(each, self.axes) for each in apply(emit, self, *args, **kwargs))


def topk(
    emit: Emitter, self: Padded, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Padded | Refuse, ...]:
    """The first of the order; where the dimension is padded all of it is made, and the values alone
    are known.
    """
    at = wrap_dim(dim, self.ndim) if self.ndim else 0
    axes = (*self.axes[:at], normal((k,)), *self.axes[at + 1 :])
    if not self.ndim or not is_padded(self.axes[at]):
        return tuple(
            Padded(each, axes[: self.ndim]) for each in apply(emit, self, k, at, largest, sorted)
        )
    if not sorted and (varies(k) or k > 1):
        text = "the order of an unsorted topk depends on the size in memory"
        raise Refuse(text, *padded_sizes((self.axes[at],)), remedy="sorted=True")
    found = _sorted(emit, self, at, largest)
    first = [
        Padded(emit.call(_aten.slice.Tensor, each.tensor, at, 0, capacity(k)), axes)
        for each in found
    ]
    return _of_values(
        emit,
        first,
        self.axes[at],
        "sort(stable=True) and a slice, or amax and argmax for one alone",
    )


def median(
    emit: Emitter, self: Padded, dim: int, keepdim: bool = False
) -> tuple[Padded | Refuse, ...]:
    """``median`` and ``nanmedian`` along a dimension: the lower of the two in the middle, and not
    where it is.
    """
    at = wrap_dim(dim, self.ndim) if self.ndim else 0
    if not self.ndim or not is_padded(self.axes[at]):
        left = tuple(
            () if i == at else axis for i, axis in enumerate(self.axes) if keepdim or i != at
        )
        return tuple(Padded(each, left) for each in apply(emit, self, dim, keepdim))
    x = compacted(emit, self, at)
    floating = x.dtype.is_floating_point
    filled = masked(emit, x, math.nan if floating else highest(x.dtype), {at})
    rising = emit.call(_aten.sort.stable, filled.tensor, stable=True, dim=at, descending=False)[0]
    count = emit.size(prefix(x.axes[at]))
    unknown = emit.call(_aten.isnan.default, filled.tensor)
    if "nan" in emit.op._schema.name and floating:
        count = emit.call(
            _aten.sum.dim_IntList, emit.call(_aten.logical_not.default, unknown), [at], True
        )
    middle = emit.call(_aten.clamp.default, emit.call(_aten.sub.Tensor, count, 1), 0)
    middle = emit.call(_aten.floor_divide.default, middle, emit.size(2))
    sizes = [1 if i == at else size for i, size in enumerate(rising.spec.sizes)]
    found = emit.call(
        _aten.gather.default, rising, at, emit.call(_aten.expand.default, middle, sizes)
    )
    if "nan" not in emit.op._schema.name and floating:
        spoilt = masked(emit, x.with_(tensor=unknown, fill=GARBAGE, valid=GARBAGE), False, {at})
        spoilt = emit.call(_aten.any.dim, spoilt.tensor, at, True)
        found = emit.call(_aten.masked_fill.Scalar, found, spoilt, math.nan)
    emit.repaired(f"gather: the middle of {prefix(x.axes[at])}", *padded_sizes((x.axes[at],)))
    axes = tuple(() if i == at else axis for i, axis in enumerate(x.axes) if keepdim or i != at)
    if not keepdim:
        found = emit.call(_aten.squeeze.dim, found, at)
    values = Padded(found, axes)
    text = (
        f"which of equal elements {emit.op._schema.name.removeprefix('aten::')} answers "
        "depends on the size in memory"
    )
    return values, Refuse(text, *padded_sizes((self.axes[at],)), remedy="read the value alone")


def median_of_all(emit: Emitter, self: Padded) -> Padded:
    """``median`` and ``nanmedian`` of all elements."""
    if not self.sizes:
        return Padded(apply(emit, self), ())
    flat = flattened(emit, self)
    if not flat.sizes:
        return Padded(emit.call(emit.op, flat.tensor), ())
    (found, *_) = median(emit, flat, 0)
    assert isinstance(found, Padded)
    if found.dtype.is_floating_point:  # that of nothing is NaN, as padding is
        return found
    none = emit.call(_aten.eq.Scalar, emit.size(prefix(flat.axes[0])), 0)
    converted = torch.tensor(math.nan).to(found.dtype).item()
    nothing = number(emit, converted, found)
    return found.with_(tensor=emit.call(_aten.where.self, none, nothing, found.tensor))


def histogram(emit: Emitter, self: Padded, bins: int = 100, min: Any = 0, max: Any = 0) -> Padded:  # noqa: A002
    """``histc``: what lies outside of its range is not counted, and padding does.

    Raises: Refuse where the range is the data's own, as it is where both ends are one number of
        the dtype; or where counts are rounded, which depends on the size in memory.
    """
    ends = lowered(min), lowered(max)
    made = emit.call(emit.op, _outside(emit, self, *ends).tensor, bins, *ends)
    return Padded(made, (normal((bins,)),))


def _outside(emit: Emitter, x: Padded, low: int | float, high: int | float) -> Padded:
    """``x`` with padding outside of a range."""
    sizes = padded_sizes(x.axes)
    if not sizes:
        return x
    if x.dtype in (torch.float16, torch.bfloat16):
        raise Refuse(f"counts as numbers of {x.dtype} are rounded", *sizes, remedy="use float32")
    floating = x.dtype.is_floating_point
    first, last = (
        torch.tensor(each, dtype=x.dtype).item() if floating else int(each) for each in (low, high)
    )
    if first >= last:
        raise Refuse("the range is that of the data", *sizes, remedy="give min and max")
    return masked(emit, x, -math.inf if floating else first - 1)
