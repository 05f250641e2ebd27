"""Reductions, softmax and scans over padded tensors: padding gets the identity, or comes after what is valid."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from meta_fns.core.dims import wrap_dim, wrap_dims
from meta_fns.padding.axes import Axis, padded_sizes
from meta_fns.padding.fills import GARBAGE, ZERO
from meta_fns.padding.padded import Emitter, Padded, apply
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import compacted, count, highest, lowest, masked

__all__ = ["IDENTITIES", "extreme_along", "mean", "position", "reduction", "scan", "softmax", "whole"]

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
    **dict.fromkeys(("logsumexp", "_softmax", "_log_softmax", "_safe_softmax"), lambda dtype: -math.inf),
}
"""What changes nothing, by the name of the op."""


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


def reduction(emit: Emitter, self: Padded, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    """A reduction with an identity (a row of ``IDENTITIES``) over some dimensions or all."""
    if dim is not None and not isinstance(dim, int) and not dim and emit.op._overloadname == "dims":
        raise Refuse("an empty list of dimensions reduces nothing here", *self.sizes)
    dims = _dims(self, dim)
    made = apply(emit, _neutral(emit, self, dims), *_given(emit, dim, keepdim), **kwargs)
    summed = emit.op._schema.name == "aten::sum"
    return Padded(made, _left(self, dims, keepdim), ZERO if summed and self.fill.is_constant(0) else GARBAGE)


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


def mean(emit: Emitter, self: Padded, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Padded:
    """The sum of the valid elements over the number of them; in float32 for half precision, as the op itself adds."""
    dims = _dims(self, dim)
    if not self.padded_dims() & dims:
        made = apply(emit, self, *_given(emit, dim, keepdim), dtype=dtype)
        return Padded(made, _left(self, dims, keepdim))
    spec = emit.results[0]
    assert spec is not None
    if spec.dtype.is_complex:
        raise Refuse("complex means are not known to be right", *self.sizes)
    wide = torch.float32 if spec.dtype in _HALF else spec.dtype
    filled = masked(emit, self, 0, dims)
    total = emit.call(_aten.sum.dim_IntList, filled.tensor, sorted(dims), keepdim, dtype=wide)
    made = emit.call(_aten.div.Tensor, total, count(emit, [self.axes[i] for i in sorted(dims)]))
    if wide is not spec.dtype:
        made = emit.call(_aten._to_copy.default, made, dtype=spec.dtype)
    return Padded(made, _left(self, dims, keepdim))


def position(emit: Emitter, self: Padded, dim: int | None = None, keepdim: bool = False) -> Padded:
    """``argmax`` and ``argmin``: the first of several equal ones is meant, and padding comes last."""
    dims = _dims(self, dim)
    padded = self.padded_dims() & dims
    if padded and dim is None and self.ndim > 1:
        remedy = "name a dimension"
        raise Refuse("a position in the flattened tensor depends on the sizes", *self.sizes, remedy=remedy)
    for each in padded:
        self = compacted(emit, self, each)
    return Padded(apply(emit, _neutral(emit, self, dims), dim, keepdim), _left(self, dims, keepdim))


def extreme_along(emit: Emitter, self: Padded, dim: int, keepdim: bool = False) -> tuple[Padded, ...]:
    """``max`` and ``min`` along a dimension: values, and the positions of the first ones."""
    dims = _dims(self, dim)
    for each in self.padded_dims() & dims:
        self = compacted(emit, self, each)
    axes = _left(self, dims, keepdim)
    return tuple(Padded(each, axes) for each in apply(emit, _neutral(emit, self, dims), dim, keepdim))


def whole(emit: Emitter, self: Padded, dim: Any = None, *, keepdim: bool = False, **kwargs: Any) -> Any:
    """A reduction over dimensions without padding.

    Raises: Refuse for a padded one.
    """
    dims = _dims(self, dim)
    if self.padded_dims() & dims:
        remedy = "write it as a mean of squares"
        raise Refuse("a variance over padding", *padded_sizes(self.axes[i] for i in dims), remedy=remedy)
    made = apply(emit, self, dim, keepdim=keepdim, **kwargs)
    axes = _left(self, dims, keepdim)
    return tuple(Padded(each, axes) for each in made) if isinstance(made, (list, tuple)) else Padded(made, axes)


def softmax(emit: Emitter, self: Padded, dim: int, *rest: Any, **kwargs: Any) -> Padded:
    """``softmax`` and its kin: padding along the dimension weighs nothing."""
    return Padded(apply(emit, _neutral(emit, self, _dims(self, dim)), dim, *rest, **kwargs), self.axes)


def scan(emit: Emitter, self: Padded, dim: int, **kwargs: Any) -> Padded:
    """A running sum or product: it goes forward, and padding comes after what is valid."""
    if self.ndim:
        self = compacted(emit, self, wrap_dim(dim, self.ndim))
    return Padded(apply(emit, self, dim, **kwargs), self.axes)
