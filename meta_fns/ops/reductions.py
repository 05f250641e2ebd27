"""Reductions and scans. Reduced outputs are contiguous whatever the layout of the input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.checks import refuse_unless_empty
from meta_fns.core.derived_rules import into
from meta_fns.core.dims import wrap_dim, wrap_dims
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Shape, check, empty, show
from meta_fns.core.spec import TensorSpec
from meta_fns.core.type_promotion import is_float, sum_dtype, to_real
from meta_fns.errors import DtypeError
from meta_fns.padding import reductions as padded_reductions

__all__ = ["need_nonempty", "reduce_to", "reduced_dims", "reduced_sizes"]


def reduced_dims(dim: Sequence[int] | int | None, ndim: int) -> frozenset[int]:
    """The dimensions that a reduction removes: all of them for None and for an empty list.

    Raises: ShapeError if one is out of range or named twice.
    """
    if isinstance(dim, int):
        return frozenset((wrap_dim(dim, ndim),))
    if dim is None or not dim:
        return frozenset(range(max(ndim, 1)))
    return frozenset(wrap_dims(dim, ndim))


def reduced_sizes(sizes: Shape, dims: frozenset[int], keepdim: bool) -> Shape:
    """The sizes left, with 1 for each reduced dimension if ``keepdim``."""
    if keepdim:
        return tuple([1 if i in dims else size for i, size in enumerate(sizes)])
    return tuple([size for i, size in enumerate(sizes) if i not in dims])


def reduce_to(
    self: TensorSpec, dim: Sequence[int] | int | None, keepdim: bool, dtype: torch.dtype
) -> TensorSpec:
    """The contiguous result, of ``dtype``, of reducing over ``dim``."""
    dims = reduced_dims(dim, len(self.sizes))
    return TensorSpec.contiguous(reduced_sizes(self.sizes, dims, keepdim), dtype, self.device)


def need_nonempty(self: TensorSpec, dims: frozenset[int], name: str) -> None:
    """Raise ShapeError if a dimension reduced by an op without an identity has size 0."""
    for i in dims:
        if i < len(self.sizes):
            check(
                self.sizes[i] != 0,
                lambda: f"{name} over a dimension of size 0 has no value: {show(self.sizes)}",
            )


@rule("aten.sum.default", name="reduce everything", padding=padded_reductions.reduction)
def sum_all(self: TensorSpec, *, dtype: torch.dtype | None = None) -> TensorSpec:
    """The sum of all elements; int64 for bools and integers unless told."""
    return TensorSpec((), (), 0, sum_dtype(self.dtype, dtype), self.device, torch.strided, True)


@rule("aten.prod.default", name="reduce everything", padding=padded_reductions.reduction)
def prod_all(self: TensorSpec, *, dtype: torch.dtype | None = None) -> TensorSpec:
    """The product of all elements."""
    return TensorSpec((), (), 0, sum_dtype(self.dtype, dtype), self.device, torch.strided, True)


@rule("aten.sum.dim_IntList", padding=padded_reductions.reduction)
def sum_dim(
    self: TensorSpec,
    dim: Sequence[int] | None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> TensorSpec:
    """The sum over dimensions (all of them for an empty list)."""
    return reduce_to(self, dim, keepdim, sum_dtype(self.dtype, dtype))


@rule("aten.nansum.default", padding=padded_reductions.reduction)
def nansum(
    self: TensorSpec,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> TensorSpec:
    """The sum over dimensions, NaN counting as 0."""
    converted = self.dtype.is_floating_point and dtype is not None and dtype.is_complex
    if self.dtype.is_complex or (converted and not empty(self.sizes)):
        raise DtypeError("nansum is not implemented for complex tensors")
    return reduce_to(self, dim, keepdim, sum_dtype(self.dtype, dtype))


@rule("aten.prod.dim_int", padding=padded_reductions.reduction)
def prod_dim(
    self: TensorSpec, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorSpec:
    """The product over one dimension."""
    return reduce_to(self, dim, keepdim, sum_dtype(self.dtype, dtype))


def _mean_dtype(self: TensorSpec, dtype: torch.dtype | None) -> torch.dtype:
    found = dtype or self.dtype
    if not is_float(found):
        raise DtypeError(f"mean needs a floating or complex dtype, got {found}")
    return found


@rule("aten.mean.default", name="reduce everything", padding=padded_reductions.mean)
def mean_all(self: TensorSpec, *, dtype: torch.dtype | None = None) -> TensorSpec:
    """The mean of all elements."""
    return TensorSpec((), (), 0, _mean_dtype(self, dtype), self.device, torch.strided, True)


@rule("aten.mean.dim", padding=padded_reductions.mean)
def mean_dim(
    self: TensorSpec,
    dim: Sequence[int] | None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> TensorSpec:
    """The mean over dimensions (all of them for an empty list)."""
    return reduce_to(self, dim, keepdim, _mean_dtype(self, dtype))


def _truth_dtype(self: TensorSpec) -> torch.dtype:
    # uint8 stays uint8: from before there was a bool dtype.
    return torch.uint8 if self.dtype is torch.uint8 else torch.bool


@rule(
    "aten.all.default",
    "aten.any.default",
    name="reduce everything",
    padding=padded_reductions.reduction,
)
def all_all(self: TensorSpec) -> TensorSpec:
    """Return whether all (any) elements are true."""
    return TensorSpec((), (), 0, _truth_dtype(self), self.device, torch.strided, True)


@rule(
    "aten.all.dim", "aten.any.dim", name="reduce a dimension", padding=padded_reductions.reduction
)
def all_dim(self: TensorSpec, dim: int, keepdim: bool = False) -> TensorSpec:
    """Return whether all (any) elements are true, over one dimension."""
    return reduce_to(self, dim, keepdim, _truth_dtype(self))


@rule(
    "aten.all.dims", "aten.any.dims", name="reduce dimensions", padding=padded_reductions.reduction
)
def all_dims(
    self: TensorSpec, dim: Sequence[int] | None = None, keepdim: bool = False
) -> TensorSpec:
    """Return whether all (any) elements are true, over dimensions; an empty list reduces
    nothing.
    """
    if dim is not None and not dim:
        return self.fresh(None, _truth_dtype(self))
    return reduce_to(self, dim, keepdim, _truth_dtype(self))


def _real(self: TensorSpec, name: str) -> torch.dtype:
    if self.dtype.is_complex:
        raise DtypeError(f"{name} is not implemented for complex tensors")
    return self.dtype


@rule(
    "aten.amax.default",
    "aten.amin.default",
    name="extremes over dimensions",
    padding=padded_reductions.reduction,
)
def amax(self: TensorSpec, dim: Sequence[int] = (), keepdim: bool = False) -> TensorSpec:
    """The largest (smallest) elements over dimensions, which may not be empty."""
    dtype = self.dtype if empty(self.sizes) else _real(self, "amax")
    need_nonempty(self, reduced_dims(dim, len(self.sizes)), "a maximum")
    return reduce_to(self, dim, keepdim, dtype)


@rule(
    "aten.max.default",
    "aten.min.default",
    name="reduce everything",
    padding=padded_reductions.reduction,
)
def max_all(self: TensorSpec) -> TensorSpec:
    """The largest (smallest) of all elements."""
    dtype = _real(self, "max")
    need_nonempty(self, reduced_dims(None, len(self.sizes)), "a maximum")
    return TensorSpec((), (), 0, dtype, self.device, torch.strided, True)


@rule(
    "aten.max.dim",
    "aten.min.dim",
    name="extremes along a dimension",
    padding=padded_reductions.extreme_along,
)
def max_dim(self: TensorSpec, dim: int, keepdim: bool = False) -> tuple[TensorSpec, TensorSpec]:
    """The largest (smallest) elements over one dimension, and their int64 positions."""
    dtype = _real(self, "max")
    need_nonempty(self, reduced_dims(dim, len(self.sizes)), "a maximum")
    values = reduce_to(self, dim, keepdim, dtype)
    return values, TensorSpec(
        values.sizes, values.strides, 0, torch.int64, self.device, torch.strided, True
    )


@rule(
    "aten.argmax.default",
    "aten.argmin.default",
    name="positions of extremes",
    padding=padded_reductions.position,
)
def argmax(self: TensorSpec, dim: int | None = None, keepdim: bool = False) -> TensorSpec:
    """The int64 position of the largest (smallest) element, over one dimension or in the flattened
    tensor.
    """
    if _real(self, "argmax") is torch.bool:
        raise DtypeError("argmax is not implemented for bool tensors")
    need_nonempty(self, reduced_dims(dim, len(self.sizes)), "argmax")
    return reduce_to(self, dim, keepdim, torch.int64)


@rule("aten.aminmax.default", padding=padded_reductions.extremes)
def aminmax(
    self: TensorSpec, *, dim: int | None = None, keepdim: bool = False
) -> tuple[TensorSpec, TensorSpec]:
    """The smallest and the largest elements."""
    dtype = _real(self, "aminmax")
    need_nonempty(self, reduced_dims(dim, len(self.sizes)), "a maximum")
    result = reduce_to(self, dim, keepdim, dtype)
    return result, result


def _var_dtype(self: TensorSpec) -> torch.dtype:
    if not is_float(self.dtype):
        raise DtypeError(f"std and var need a floating or complex dtype, got {self.dtype}")
    return to_real(self.dtype)


@rule(
    "aten.var.correction",
    "aten.std.correction",
    name="variance",
    padding=padded_reductions.variance,
)
def var(
    self: TensorSpec,
    dim: Sequence[int] | None = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
) -> TensorSpec:
    """The variance (standard deviation) over dimensions."""
    return reduce_to(self, dim, keepdim, _var_dtype(self))


@rule(
    "aten.var_mean.correction",
    "aten.std_mean.correction",
    name="variance and mean",
    padding=padded_reductions.variance,
)
def var_mean(
    self: TensorSpec,
    dim: Sequence[int] | None = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
) -> tuple[TensorSpec, TensorSpec]:
    """The variance (standard deviation) and the mean over dimensions."""
    return reduce_to(self, dim, keepdim, _var_dtype(self)), reduce_to(
        self, dim, keepdim, self.dtype
    )


@rule("aten.logsumexp.default", padding=padded_reductions.reduction)
def logsumexp(self: TensorSpec, dim: Sequence[int], keepdim: bool = False) -> TensorSpec:
    """The logarithm of the sum of exponentials over dimensions."""
    dtype = self.dtype if is_float(self.dtype) else torch.get_default_dtype()
    return reduce_to(self, dim, keepdim, dtype)


@rule("aten.count_nonzero.dim_IntList", padding=padded_reductions.reduction)
def count_nonzero(self: TensorSpec, dim: Sequence[int]) -> TensorSpec:
    """Count the non-zero elements over dimensions."""
    return reduce_to(self, dim, False, torch.int64)


@rule(
    "aten.cumsum.default", "aten.cumprod.default", name="cumulative", padding=padded_reductions.scan
)
def cumsum(self: TensorSpec, dim: int, *, dtype: torch.dtype | None = None) -> TensorSpec:
    """Running sums (products) along ``dim``; int64 for bools and integers unless told."""
    wrap_dim(dim, len(self.sizes))
    return self.fresh(None, sum_dtype(self.dtype, dtype))


@rule("aten.cumsum.out", "aten.cumprod.out", name="cumulative")
def cumsum_out(
    self: TensorSpec, dim: int, *, dtype: torch.dtype | None = None, out: TensorSpec
) -> TensorSpec:
    """Return running sums (products) in the dtype of ``out``, whichever dtype that is."""
    wrap_dim(dim, len(self.sizes))
    if dtype is not None and dtype is not out.dtype:
        raise DtypeError(f"out must be of dtype {dtype}, got {out.dtype}")
    if self.sizes and out.dtype is torch.bool:
        refuse_unless_empty("running sums are not implemented for bool", self.sizes)
    return into(out, self.fresh(None, out.dtype))


@rule("aten.cumsum_.default", "aten.cumprod_.default", name="cumulative")
def cumsum_(self: TensorSpec, dim: int, *, dtype: torch.dtype | None = None) -> TensorSpec:
    """Running sums (products) in place, in the dtype that the tensor has."""
    return cumsum_out(self, dim, dtype=dtype, out=self)


@rule("aten.logcumsumexp.default", padding=padded_reductions.scan)
def logcumsumexp(self: TensorSpec, dim: int) -> TensorSpec:
    """Running logarithms of sums of exponentials along ``dim``."""
    wrap_dim(dim, len(self.sizes))
    if not is_float(self.dtype):
        raise DtypeError(f"logcumsumexp is not implemented for {self.dtype}")
    return self.fresh()
