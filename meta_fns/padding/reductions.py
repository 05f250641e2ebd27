"""Reductions, softmax and scans over padded tensors: padding gets the identity, or comes after what
is valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from meta_fns.core.dims import wrap_dim, wrap_dims
from meta_fns.padding.axes import Axis, capacity_of
from meta_fns.padding.fills import GARBAGE, ZERO
from meta_fns.padding.padded import Emitter, Handle, Padded, apply
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import (
    compacted,
    count,
    flattened,
    highest,
    last_along,
    lowest,
    masked,
    number,
)

__all__ = [
    "IDENTITIES",
    "extreme_along",
    "extremes",
    "mean",
    "mean_of",
    "moments",
    "norm",
    "norm_of",
    "position",
    "reduction",
    "scan",
    "softmax",
    "variance",
]

_aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)

Number = bool | int | float

IDENTITIES: dict[str, Callable[[torch.dtype], Number]] = {
    "sum": lambda dtype: 0,
    "nansum": lambda dtype: 0,
    "count_nonzero": lambda dtype: 0,
    "any": lambda dtype: 0,
    "prod": lambda dtype: 1,
    "all": lambda dtype: 1,
    **dict.fromkeys(("max", "amax", "argmax"), lowest),
    **dict.fromkeys(("min", "amin", "argmin"), highest),
    **dict.fromkeys(
        ("logsumexp", "_softmax", "_log_softmax", "_safe_softmax"), lambda dtype: -math.inf
    ),
}
"""The identity element of each reduction, by the name of the op and by dtype."""


def _neutral(emit: Emitter, x: Padded, dims: frozenset[int]) -> Padded:
    """``x`` with the op's identity at the padding of these dimensions.

    Raises: Refuse where the dtype does not hold it.
    """
    if not x.padded_dims() & dims:
        return x
    value = IDENTITIES[emit.op._schema.name.removeprefix("aten::")](x.dtype)
    if x.dtype.is_complex or (value == -math.inf and not x.dtype.is_floating_point):
        raise Refuse(f"{x.dtype} has no number that changes nothing here", *x.sizes)
    return masked(emit, x, value, dims)


def _dims(x: Padded, dim: Any) -> frozenset[int]:
    if isinstance(dim, int):
        return frozenset((wrap_dim(dim, x.ndim),)) if x.ndim else frozenset()
    if dim is None or not dim:
        return frozenset(range(x.ndim))
    return frozenset(wrap_dims(dim, x.ndim))


def _left(x: Padded, dims: frozenset[int], keepdim: bool) -> tuple[Axis, ...]:
    if keepdim:
        return tuple(() if i in dims else axis for i, axis in enumerate(x.axes))
    return tuple(axis for i, axis in enumerate(x.axes) if i not in dims)


def reduction(
    emit: Emitter, self: Padded, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Any:
    """A reduction with an identity (a row of ``IDENTITIES``) over some dimensions or all."""
    if dim is not None and not isinstance(dim, int) and not dim and emit.op._overloadname == "dims":
        raise Refuse("an empty list of dimensions reduces nothing here", *self.sizes)
    dims = _dims(self, dim)
    made = apply(emit, _neutral(emit, self, dims), *_given(emit, dim, keepdim), **kwargs)
    summed = emit.op._schema.name == "aten::sum"
    return Padded(
        made, _left(self, dims, keepdim), ZERO if summed and self.fill.is_constant(0) else GARBAGE
    )


def _given(emit: Emitter, dim: Any, keepdim: bool) -> tuple[Any, ...]:
    """The arguments after the first, for overloads with and without dimensions."""
    found: list[Any] = []
    for argument in emit.op._schema.arguments[1:]:
        if argument.name == "dim":
            required = dim is None and not str(argument.type).startswith("Optional")
            found.append([] if required else dim)
        elif argument.name == "keepdim":
            found.append(keepdim)
    return tuple(found)


def mean(
    emit: Emitter, self: Padded, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Padded:
    """The sum of the valid elements over the number of them; in float32 for half precision, as the
    op itself adds.
    """
    dims = _dims(self, dim)
    if not self.padded_dims() & dims:
        made = apply(emit, self, *_given(emit, dim, keepdim), dtype=dtype)
        return Padded(made, _left(self, dims, keepdim))
    spec = emit.results[0]
    assert spec is not None
    if spec.dtype.is_complex:
        raise Refuse("complex means are not known to be right", *self.sizes)
    return mean_of(emit, self, dims, keepdim=keepdim, dtype=spec.dtype)


def mean_of(
    emit: Emitter, x: Padded, dims: frozenset[int], *, keepdim: bool, dtype: torch.dtype
) -> Padded:
    """The mean over some dimensions as a tensor of a dtype."""
    wide = torch.float32 if dtype in _HALF else dtype
    total = emit.call(
        _aten.sum.dim_IntList, masked(emit, x, 0, dims).tensor, sorted(dims), keepdim, dtype=wide
    )
    made = emit.call(_aten.div.Tensor, total, count(emit, [x.axes[i] for i in sorted(dims)]))
    if wide is not dtype:
        made = emit.call(_aten._to_copy.default, made, dtype=dtype)
    return Padded(made, _left(x, dims, keepdim))


def position(emit: Emitter, self: Padded, dim: int | None = None, keepdim: bool = False) -> Padded:
    """``argmax`` and ``argmin``: the first of several equal ones is meant, and padding comes
    last.
    """
    dims = _dims(self, dim)
    padded = self.padded_dims() & dims
    if padded and dim is None and self.ndim > 1:
        self = flattened(emit, self)
        found = position(emit, self, 0)
        shape = [1] * len(emit.results[0].sizes) if emit.results[0] is not None else []
        return (
            found
            if not keepdim
            else Padded(emit.call(_aten.view.default, found.tensor, shape), ((),) * len(shape))
        )
    for each in padded:
        self = compacted(emit, self, each)
    return Padded(apply(emit, _neutral(emit, self, dims), dim, keepdim), _left(self, dims, keepdim))


def extreme_along(
    emit: Emitter, self: Padded, dim: int, keepdim: bool = False
) -> tuple[Padded, ...]:
    """``max`` and ``min`` along a dimension: values, and the positions of the first ones."""
    dims = _dims(self, dim)
    for each in self.padded_dims() & dims:
        self = compacted(emit, self, each)
    axes = _left(self, dims, keepdim)
    return tuple(
        Padded(each, axes) for each in apply(emit, _neutral(emit, self, dims), dim, keepdim)
    )


def variance(
    emit: Emitter, self: Padded, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    """``var``, ``std``, and both with the mean: squares of what valid elements are from their
    mean.
    """
    dims = _dims(self, dim)
    name = emit.op._schema.name.removeprefix("aten::")
    axes = _left(self, dims, keepdim)
    if not self.padded_dims() & dims:
        made = apply(emit, self, dim, correction=correction, keepdim=keepdim)
        return (
            tuple(Padded(each, axes) for each in made)
            if name.endswith("mean")
            else Padded(made, axes)
        )
    if self.dtype.is_complex:
        raise Refuse("complex variances are not known to be right", *self.sizes)
    found, average = moments(emit, self, dims, 1 if correction is None else correction)
    if name.endswith("mean"):
        average = emit.call(_aten.add.Tensor, average, _after_infinity(emit, self, dims))
    results = [emit.call(_aten.sqrt.default, found) if name.startswith("std") else found, average]
    for i, each in enumerate(results):
        each = (
            emit.call(_aten._to_copy.default, each, dtype=self.dtype)
            if each.spec.dtype is not self.dtype
            else each
        )
        kept = (
            each
            if keepdim
            else emit.call(_aten.reshape.default, each, [capacity_of(axis) for axis in axes])
        )
        results[i] = kept
    pair = tuple(Padded(each, axes) for each in results)
    return pair if name.endswith("mean") else pair[0]


def _after_infinity(emit: Emitter, x: Padded, dims: frozenset[int]) -> Handle:
    """NaN where some element but the last is not finite, else 0; reduced dimensions are kept with
    size 1.

    The mean that comes with a variance is a running one, which the first number after an infinite
    one makes NaN.
    """
    last: Handle | None = None
    for dim in sorted(dims):
        shape = [1] * dim + [-1] + [1] * (x.ndim - dim - 1)
        part = emit.call(_aten.view.default, last_along(emit, x.axes[dim], x.device), shape)
        last = part if last is None else emit.call(_aten.bitwise_and.Tensor, last, part)
    off = emit.call(_aten.mul.Tensor, x.tensor, 0)
    off = emit.call(_aten.where.self, last, number(emit, 0, x), off)
    filled = masked(emit, Padded(off, x.axes), 0, dims)
    made: Handle = emit.call(_aten.sum.dim_IntList, filled.tensor, sorted(dims), True)
    return made


def moments(
    emit: Emitter, x: Padded, dims: frozenset[int], correction: Any
) -> tuple[Handle, Handle]:
    """The variance and the mean over some dimensions, which are kept with size 1; in float32 at
    least.
    """
    wide = torch.float32 if x.dtype in _HALF else x.dtype
    numbers = (
        x
        if wide is x.dtype
        else x.with_(tensor=emit.call(_aten._to_copy.default, x.tensor, dtype=wide))
    )
    average = mean_of(emit, numbers, dims, keepdim=True, dtype=wide)
    off = emit.call(_aten.sub.Tensor, numbers.tensor, average.tensor)
    squares = masked(emit, Padded(emit.call(_aten.mul.Tensor, off, off), x.axes), 0, dims)
    total = emit.call(_aten.sum.dim_IntList, squares.tensor, sorted(dims), True)
    elements = count(emit, [x.axes[i] for i in sorted(dims)])
    if isinstance(correction, float):  # an integer less a fraction would be of the default dtype
        elements = emit.call(_aten._to_copy.default, elements, dtype=torch.float64)
    free = emit.call(_aten.sub.Tensor, elements, correction)
    if correction < 0:  # nothing has no variance, however many are added to it
        free = emit.call(_aten.mul.Tensor, free, emit.call(_aten.gt.Scalar, elements, 0))
    found: Handle = emit.call(_aten.div.Tensor, total, emit.call(_aten.clamp.default, free, 0))
    return found, average.tensor


def norm(
    emit: Emitter,
    self: Padded,
    ord: Any = 2,  # noqa: A002 - name of the schema
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Padded:
    """A vector norm: 0 adds nothing to one of a positive order, nor is it counted; for others
    infinity is least.
    """
    dims = _dims(self, dim)
    filled = masked(emit, self, math.inf if ord < 0 else 0, dims)
    return Padded(apply(emit, filled, ord, dim, keepdim, dtype=dtype), _left(self, dims, keepdim))


def norm_of(
    emit: Emitter,
    self: Padded,
    p: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Padded:
    """``norm``, the older name of a vector norm."""
    order = 2 if p is None else p
    dims = _dims(self, dim)
    filled = masked(emit, self, math.inf if order < 0 else 0, dims)
    made = emit.call(
        _aten.linalg_vector_norm.default, filled.tensor, order, sorted(dims), keepdim, dtype=dtype
    )
    return Padded(made, _left(self, dims, keepdim))


def extremes(
    emit: Emitter, self: Padded, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Padded, ...]:
    """``aminmax``: the least and the largest element."""
    dims = _dims(self, dim)
    if self.dtype.is_complex:
        raise Refuse(f"{self.dtype} has no order", *self.sizes)
    pairs = ((_aten.amin.default, highest), (_aten.amax.default, lowest))
    filled = [(op, masked(emit, self, outermost(self.dtype), dims)) for op, outermost in pairs]
    axes = _left(self, dims, keepdim)
    return tuple(
        Padded(emit.call(op, each.tensor, sorted(dims), keepdim), axes) for op, each in filled
    )


def softmax(emit: Emitter, self: Padded, dim: int, *rest: Any, **kwargs: Any) -> Padded:
    """``softmax`` and its kin: padding along the dimension weighs nothing."""
    return Padded(
        apply(emit, _neutral(emit, self, _dims(self, dim)), dim, *rest, **kwargs), self.axes
    )


def scan(emit: Emitter, self: Padded, dim: int, **kwargs: Any) -> Any:
    """A running sum, product or extreme: it goes forward, and padding comes after what is valid."""
    if self.ndim:
        self = compacted(emit, self, wrap_dim(dim, self.ndim))
    made = apply(emit, self, dim, **kwargs)
    several = isinstance(made, (list, tuple))
    return tuple(Padded(each, self.axes) for each in made) if several else Padded(made, self.axes)
