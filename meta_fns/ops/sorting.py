"""Sorting, selecting by order, and searching."""

from __future__ import annotations

from typing import Any

import torch

from meta_fns.core.checks import INTS, REALS, need_dtype, refuse_unless_empty
from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, check, known, same, show
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import laid_out_like
from meta_fns.core.type_promotion import result_type
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.reductions import reduced_sizes
from meta_fns.padding import rows
from meta_fns.padding import sorting as padded_sorting
from meta_fns.padding.reductions import reduction, scan

__all__: list[str] = []

_ORDERED = REALS | {torch.bool}
Pair = tuple[TensorSpec, TensorSpec]


def _need_ordered(self: TensorSpec) -> None:
    if self.dtype.is_complex:
        raise DtypeError(f"complex numbers have no order: {self.dtype}")


@rule("aten.sort.default", padding=padded_sorting.sort)
def sort(self: TensorSpec, dim: int = -1, descending: bool = False) -> Pair:
    """The values in order along ``dim``, and where they were; laid out like the input."""
    return sort_stable(self, stable=False, dim=dim, descending=descending)


@rule("aten.sort.stable", padding=padded_sorting.sort)
def sort_stable(
    self: TensorSpec, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Pair:
    """The values in order along ``dim``, and where they were; laid out like the input."""
    wrap_dim(dim, len(self.sizes))
    _need_ordered(self)
    values = laid_out_like(self)
    return values, values.with_(dtype=torch.int64)


@rule("aten.topk.default", padding=padded_sorting.topk)
def topk(
    self: TensorSpec, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Pair:
    """The ``k`` largest (smallest) along ``dim``, and where they were; contiguous."""
    at = wrap_dim(dim, len(self.sizes))
    _need_ordered(self)
    if self.dtype is torch.bool:
        raise DtypeError("not implemented for bool")
    full = self.sizes[at] if self.sizes else 1
    if not (type(k) is int and k >= 0) and not known(k >= 0):
        check(k >= 0, lambda: f"k must not be negative, got {k}")
    if k is not full and not same(k, full) and not known(k <= full):
        check(k <= full, lambda: f"k = {k} is larger than dimension {at} of {show(self.sizes)}")
    sizes = (*self.sizes[:at], k, *self.sizes[at + 1 :]) if self.sizes else ()
    values = TensorSpec.contiguous(sizes, self.dtype, self.device)
    return values, values.with_(dtype=torch.int64)


def _without(self: TensorSpec, dim: int, keepdim: bool, name: str) -> Pair:
    """Values and int64 positions with ``dim`` reduced, which may not be of size 0."""
    at = wrap_dim(dim, len(self.sizes))
    if not self.sizes:
        values = TensorSpec.contiguous((), self.dtype, self.device)
    else:
        size = self.sizes[at]
        if not known(size != 0):
            check(size != 0, lambda: f"{name} over a dimension of size 0: {show(self.sizes)}")
        sizes = reduced_sizes(self.sizes, frozenset((at,)), keepdim)
        values = TensorSpec.contiguous(sizes, self.dtype, self.device)
    return values, values.with_(dtype=torch.int64)


@rule("aten.kthvalue.default")
def kthvalue(self: TensorSpec, k: Size, dim: int = -1, keepdim: bool = False) -> Pair:
    """The k-th smallest along ``dim``, and where it was."""
    at = wrap_dim(dim, len(self.sizes))
    need_dtype("self", self, REALS)
    full = self.sizes[at] if self.sizes else 1
    check(k >= 1, lambda: f"k must be at least 1, got {k}")
    check(k <= full, lambda: f"k = {k} is larger than dimension {at} of {show(self.sizes)}")
    return _without(self, dim, keepdim, "kthvalue")


@rule("aten.median.default", "aten.nanmedian.default", padding=padded_sorting.median_of_all)
def median(self: TensorSpec) -> TensorSpec:
    """The median of all elements."""
    need_dtype("self", self, REALS)
    return TensorSpec.contiguous((), self.dtype, self.device)


@rule("aten.median.dim", "aten.nanmedian.dim", padding=padded_sorting.median)
def median_dim(self: TensorSpec, dim: int, keepdim: bool = False) -> Pair:
    """The median along ``dim``, and where it was."""
    need_dtype("self", self, REALS)
    return _without(self, dim, keepdim, "median")


@rule("aten.mode.default")
def mode(self: TensorSpec, dim: int = -1, keepdim: bool = False) -> Pair:
    """The most frequent value along ``dim``, and where it was."""
    need_dtype("self", self, _ORDERED)
    return _without(self, dim, keepdim, "mode")


@rule("aten.cummax.default", "aten.cummin.default", name="cumulative extremes", padding=scan)
def cummax(self: TensorSpec, dim: int) -> Pair:
    """The largest (smallest) so far along ``dim``, and where it was; contiguous."""
    wrap_dim(dim, len(self.sizes))
    need_dtype("self", self, _ORDERED)
    values = self.fresh()
    return values, values.with_(dtype=torch.int64)


def _search_result(spec: TensorSpec, out_int32: bool) -> TensorSpec:
    return TensorSpec.contiguous(spec.sizes, torch.int32 if out_int32 else torch.int64, spec.device)


def _search_checks(
    sequence: TensorSpec, values: Any, right: bool, side: str | None, sorter: TensorSpec | None
) -> None:
    if side not in (None, "left", "right"):
        raise ShapeError(f"side must be 'left' or 'right', got {side!r}")
    if side == "left" and right:
        raise ShapeError("side='left' and right=True contradict each other")
    common = result_type((sequence, values))
    if common is torch.bool or common.is_complex:
        refuse_unless_empty(
            f"not implemented for {common}", values.sizes if isinstance(values, TensorSpec) else ()
        )
    if not sequence.sizes:
        raise ShapeError("boundaries must have at least one dimension")
    if sorter is not None:
        if sorter.dtype is not torch.int64:
            raise DtypeError(f"sorter must be int64, got {sorter.dtype}")
        if len(sorter.sizes) != len(sequence.sizes):
            raise ShapeError(
                f"sorter {show(sorter.sizes)} must be of the sizes {show(sequence.sizes)}"
            )
        for a, b in zip(sorter.sizes, sequence.sizes, strict=True):
            if not same(a, b):
                check(
                    a == b,
                    lambda: (
                        f"sorter {show(sorter.sizes)} must be of the sizes {show(sequence.sizes)}"
                    ),
                )


@rule("aten.searchsorted.Tensor", padding=rows.searched)
def searchsorted(
    sorted_sequence: TensorSpec,
    self: TensorSpec,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: TensorSpec | None = None,
) -> TensorSpec:
    """Return the insertion points of values along the last dimension of the sorted boundaries."""
    _search_checks(sorted_sequence, self, right, side, sorter)
    if len(sorted_sequence.sizes) != 1:
        if len(sorted_sequence.sizes) != len(self.sizes):
            raise ShapeError(
                f"boundaries {show(sorted_sequence.sizes)} do not fit values {show(self.sizes)}"
            )
        for a, b in zip(sorted_sequence.sizes[:-1], self.sizes[:-1], strict=True):
            if not same(a, b):
                check(
                    a == b,
                    lambda: (
                        f"boundaries {show(sorted_sequence.sizes)} do not fit values "
                        f"{show(self.sizes)}"
                    ),
                )
    return _search_result(self, out_int32)


@rule("aten.searchsorted.Scalar")
def searchsorted_number(
    sorted_sequence: TensorSpec,
    self: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: TensorSpec | None = None,
) -> TensorSpec:
    """Return the insertion point of a number in the sorted boundaries."""
    _search_checks(sorted_sequence, self, right, side, sorter)
    if len(sorted_sequence.sizes) != 1:
        raise ShapeError(
            f"boundaries must be a vector for a number, got {show(sorted_sequence.sizes)}"
        )
    return TensorSpec.contiguous(
        (), torch.int32 if out_int32 else torch.int64, sorted_sequence.device
    )


@rule("aten.bucketize.Tensor", padding=rows.in_buckets)
def bucketize(
    self: TensorSpec, boundaries: TensorSpec, *, out_int32: bool = False, right: bool = False
) -> TensorSpec:
    """The bucket of each value; the boundaries are a vector."""
    if len(boundaries.sizes) != 1:
        raise ShapeError(f"boundaries must be a vector, got {show(boundaries.sizes)}")
    _search_checks(boundaries, self, right, None, None)
    return _search_result(self, out_int32)


@rule("aten.bucketize.Scalar")
def bucketize_number(
    self: Any, boundaries: TensorSpec, *, out_int32: bool = False, right: bool = False
) -> TensorSpec:
    """The bucket of a number."""
    return searchsorted_number(boundaries, self, out_int32=out_int32, right=right)


@rule("aten.isin.Tensor_Tensor", padding=rows.is_in)
def isin(
    elements: TensorSpec,
    test_elements: TensorSpec,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> TensorSpec:
    """Mark the elements that are among the test elements; contiguous."""
    for each in (elements, test_elements):
        need_dtype("an argument", each, REALS)
    return elements.fresh(None, torch.bool)


@rule("aten.count_nonzero.default", padding=reduction)
def count_nonzero(self: TensorSpec, dim: int | None = None) -> TensorSpec:
    """Count the non-zero elements, of all or along ``dim``."""
    if dim is None:
        return TensorSpec.contiguous((), torch.int64, self.device)
    at = wrap_dim(dim, len(self.sizes))
    return TensorSpec.contiguous(
        reduced_sizes(self.sizes, frozenset((at,)), False), torch.int64, self.device
    )


@rule("aten.histc.default", padding=padded_sorting.histogram)
def histc(self: TensorSpec, bins: int = 100, min: Any = 0, max: Any = 0) -> TensorSpec:  # noqa: A002
    """A histogram of ``bins`` counts, in the dtype of the input."""
    need_dtype("self", self, REALS if self.device.type != "cpu" else REALS - INTS)
    if bins <= 0:
        raise ShapeError(f"bins must be positive, got {bins}")
    return TensorSpec.contiguous((bins,), self.dtype, self.device)
