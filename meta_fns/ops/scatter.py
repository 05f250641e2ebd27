"""Writing by index: scatter, index_add, index_put, masked_scatter, put. Results are fresh unless in
place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from meta_fns.core.broadcasting import broadcast
from meta_fns.core.checks import (
    INDICES,
    fit_into,
    has_zero,
    need_dtype,
    need_equal,
    need_same,
    need_sizes,
)
from meta_fns.core.derived_rules import need_writable
from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import NO_CONTEXT, register, rule
from meta_fns.core.sizes import Shape, Size, at_least_one, check, known, product, same, show, static
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import laid_out_like
from meta_fns.core.type_promotion import number_dtype
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.indexing import index_plan
from meta_fns.padding import index_writes

__all__ = ["index_put", "scatter_src", "scatter_value"]

_MASKS = (torch.bool, torch.uint8)


def _both(
    name: str,
    fn: Callable[..., TensorSpec],
    *,
    overlapping: bool = False,
    padding: Callable[..., Any] | None = None,
) -> None:
    """Register ``aten.<name>`` for the functional rule ``fn``, and its in-place variant that
    returns self.
    """

    def in_place(self: TensorSpec, *args: Any, **kwargs: Any) -> TensorSpec:
        fn(self, *args, **kwargs)
        if not overlapping:
            need_writable(self)
        return self

    made = register(f"aten.{name}", fn, padding=padding)
    packet, _, overload = name.partition(".")
    register(f"aten.{packet}_.{overload}", in_place, name=made.name)


# --- scatter --------------------------------------------------------------------------------------


def _within(index: TensorSpec, full: TensorSpec, skip: int, what: str) -> None:
    """Require index sizes no larger than those of ``full``, in all dimensions but ``skip``."""
    if not (index.sizes and full.sizes):
        sizes, others = index.sizes or (1,), full.sizes or (1,)
    else:
        sizes, others = index.sizes, full.sizes
    if len(sizes) != len(others):
        raise ShapeError(
            f"index {show(index.sizes)} must have as many dimensions as {what} {show(full.sizes)}"
        )
    for d, (size, most) in enumerate(zip(sizes, others, strict=True)):
        if d == skip or size is most or same(size, most):
            continue
        fits = size <= most
        if not known(fits):
            if not static(index.sizes):
                fits = fits | (product(index.sizes) == 0)
            check(
                fits, lambda: f"index {show(index.sizes)} is larger than {what} {show(full.sizes)}"
            )


def _need_target(self: TensorSpec, at: int, index: TensorSpec) -> None:
    """A dimension of size 0 has no position that an index could name."""
    if not self.sizes or has_zero(index.sizes) or known(self.sizes[at] >= 1):
        return
    fits = (index.numel() == 0) | (self.sizes[at] >= 1)
    check(fits, lambda: f"index is out of range for dimension {at} of {show(self.sizes)}")


def _scatter_checks(self: TensorSpec, dim: int, index: TensorSpec, src: TensorSpec | None) -> None:
    at = wrap_dim(dim, len(self.sizes))
    if src is not None and src.dtype is not self.dtype:
        raise DtypeError(f"src is of {src.dtype}, self of {self.dtype}")
    if has_zero(index.sizes):
        return
    need_dtype("index", index, INDICES)
    _within(index, self, at, "self")
    _need_target(self, at, index)
    if src is not None:
        _within(index, src, -1, "src")


def scatter_src(self: TensorSpec, dim: int, index: TensorSpec, src: TensorSpec) -> TensorSpec:
    """A copy of ``self`` with ``src`` written at the positions in ``index`` along ``dim``."""
    _scatter_checks(self, dim, index, src)
    return self.fresh()


def scatter_value(self: TensorSpec, dim: int, index: TensorSpec, value: Any) -> TensorSpec:
    """A copy of ``self`` with a number written at the positions in ``index`` along ``dim``."""
    _scatter_checks(self, dim, index, None)
    return self.fresh()


_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def _need_reduction(reduce: str, accepted: Sequence[str]) -> None:
    if reduce not in accepted:
        raise ShapeError(f"reduce must be one of {', '.join(accepted)}, got {reduce!r}")


def scatter_src_with(
    self: TensorSpec, dim: int, index: TensorSpec, src: TensorSpec, *, reduce: str
) -> TensorSpec:
    """``scatter`` that adds or multiplies."""
    _need_reduction(reduce, ("add", "multiply"))
    return scatter_src(self, dim, index, src)


def scatter_value_with(
    self: TensorSpec, dim: int, index: TensorSpec, value: Any, *, reduce: str
) -> TensorSpec:
    """``scatter`` of a number that adds or multiplies."""
    _need_reduction(reduce, ("add", "multiply"))
    return scatter_value(self, dim, index, value)


def scatter_reduce(
    self: TensorSpec,
    dim: int,
    index: TensorSpec,
    src: TensorSpec,
    reduce: str,
    *,
    include_self: bool = True,
) -> TensorSpec:
    """``scatter`` that reduces what meets at one position."""
    _need_reduction(reduce, _REDUCTIONS)
    return scatter_src(self, dim, index, src)


_both("scatter.src", scatter_src, padding=index_writes.scatter)
_both("scatter.value", scatter_value, padding=index_writes.scatter)
_both("scatter.reduce", scatter_src_with, padding=index_writes.scatter)
_both("scatter.value_reduce", scatter_value_with, padding=index_writes.scatter)
_both("scatter_reduce.two", scatter_reduce, padding=index_writes.scatter)
_both("scatter_add.default", scatter_src, padding=index_writes.scatter)


# --- slices along one dimension -------------------------------------------------------------------


def _slices_checks(
    self: TensorSpec, dim: int, index: TensorSpec, source: TensorSpec, names: str
) -> int:
    at = wrap_dim(dim, len(self.sizes))
    if len(index.sizes) > 1:
        raise ShapeError(f"index must be a vector, got {show(index.sizes)}")
    need_dtype("index", index, INDICES if names != "index_copy" else (torch.int64,))
    if source.dtype is not self.dtype:
        raise DtypeError(f"source is of {source.dtype}, self of {self.dtype}")
    if source.sizes and at >= len(source.sizes):
        raise ShapeError(f"source {show(source.sizes)} has no dimension {at}")
    count = index.numel()
    need_equal(
        count, source.sizes[at] if source.sizes else 1, "index and source must have as many entries"
    )
    if len(self.sizes) == 1 or names != "index_add":
        _need_target(self, at, index)
    return at


def _same_slices(self: TensorSpec, source: TensorSpec, at: int) -> None:
    mine, theirs = (
        self.sizes[:at] + self.sizes[at + 1 :],
        source.sizes[:at] + source.sizes[at + 1 :],
    )
    if len(mine) != len(theirs):
        raise ShapeError(
            f"slices of self {show(self.sizes)} and source {show(source.sizes)} differ"
        )
    for a, b in zip(mine, theirs, strict=True):
        need_equal(a, b, f"slices of self {show(self.sizes)} and source {show(source.sizes)}")


def index_add(
    self: TensorSpec, dim: int, index: TensorSpec, source: TensorSpec, *, alpha: Any = 1
) -> TensorSpec:
    """A copy of ``self`` with slices of ``source`` added at the given indices of ``dim``."""
    at = _slices_checks(self, dim, index, source, "index_add")
    _same_slices(self, source, at)
    return self.fresh()


def index_reduce(
    self: TensorSpec,
    dim: int,
    index: TensorSpec,
    source: TensorSpec,
    reduce: str,
    *,
    include_self: bool = True,
) -> TensorSpec:
    """A copy of ``self`` reduced with slices of ``source`` at the given indices of ``dim``."""
    _need_reduction(reduce, ("prod", "mean", "amax", "amin"))
    if self.dtype is torch.bool or (self.dtype.is_complex and reduce in ("amax", "amin")):
        raise DtypeError(f"not implemented for {self.dtype}")
    at = _slices_checks(self, dim, index, source, "index_reduce")
    _same_slices(self, source, at)
    return self.fresh()


def index_copy(self: TensorSpec, dim: int, index: TensorSpec, source: TensorSpec) -> TensorSpec:
    """A copy of ``self`` with slices of ``source`` written at the given indices of ``dim``."""
    at = wrap_dim(dim, len(self.sizes))
    if len(index.sizes) > 1:
        raise ShapeError(f"index must be a vector, got {show(index.sizes)}")
    need_dtype("index", index, (torch.int64,))
    if source.dtype is not self.dtype:
        raise DtypeError(f"source is of {source.dtype}, self of {self.dtype}")
    count = index.numel()
    if not source.sizes:
        need_equal(count, 1, "index for a 0-d source")
    elif len(source.sizes) != len(self.sizes) and self.sizes:
        raise ShapeError(
            f"self {show(self.sizes)} and source {show(source.sizes)} differ in dimensions"
        )
    else:
        need_equal(count, source.sizes[at], "index and source must have as many entries")
    _same_slices(self, source, at)
    if not has_zero(source.sizes):
        _need_target(self, at, index)
    return self.fresh()


_both("index_add.default", index_add, padding=index_writes.along_index)
_both("index_reduce.default", index_reduce, padding=index_writes.along_index)
_both("index_copy.default", index_copy, padding=index_writes.along_index)


def _fill_checks(self: TensorSpec, dim: int, index: TensorSpec) -> None:
    at = wrap_dim(dim, len(self.sizes))
    if len(index.sizes) > 1:
        raise ShapeError(f"index must be a vector, got {show(index.sizes)}")
    need_dtype("index", index, (torch.int64,))
    # eager looks at no index where there is nothing to fill
    if self.sizes and not known(self.sizes[at] >= 1):
        fits = (
            (self.sizes[at] >= 1)
            | (index.numel() == 0)
            | (product(self.sizes[:at] + self.sizes[at + 1 :]) == 0)
        )
        check(fits, lambda: f"index is out of range for dimension {at} of {show(self.sizes)}")


def index_fill_number(self: TensorSpec, dim: int, index: TensorSpec, value: Any) -> TensorSpec:
    """A copy of ``self`` with a number written at the given indices of ``dim``."""
    _fill_checks(self, dim, index)
    if number_dtype(value).is_complex and not self.dtype.is_complex:
        raise DtypeError(f"a complex value does not fit into {self.dtype}")
    return laid_out_like(self)


def index_fill_tensor(
    self: TensorSpec, dim: int, index: TensorSpec, value: TensorSpec
) -> TensorSpec:
    """The same with a number in a 0-d tensor."""
    if value.sizes:
        raise ShapeError(f"value must be 0-d, got {show(value.sizes)}")
    if value.dtype.is_complex and not self.dtype.is_complex:
        raise DtypeError(f"a complex value does not fit into {self.dtype}")
    _fill_checks(self, dim, index)
    return laid_out_like(self)


_both(
    "index_fill.int_Scalar", index_fill_number, overlapping=True, padding=index_writes.along_index
)
_both(
    "index_fill.int_Tensor", index_fill_tensor, overlapping=True, padding=index_writes.along_index
)


# --- advanced indexing ----------------------------------------------------------------------------


def _values_checks(self: TensorSpec, indices: Sequence[TensorSpec | None], values: Shape) -> None:
    """Require that values broadcast to what the indices select; with masks, as far as that is known
    without data.
    """
    if not any(item is not None and item.dtype in _MASKS for item in indices):
        fit_into("values", values, index_plan(NO_CONTEXT, self, indices).sizes)
        return
    at = 0
    for item in indices:
        if item is not None and item.dtype in _MASKS:
            need_sizes("mask", item, self.sizes[at : at + len(item.sizes)])
            at += len(item.sizes)
        else:
            at += 1
    if at > len(self.sizes):
        raise ShapeError(f"too many indices for self {show(self.sizes)}")
    given = [i for i, item in enumerate(indices) if item is not None]
    if len(given) > 1:
        return
    mask = indices[given[0]]
    assert mask is not None
    after = self.sizes[given[0] + len(mask.sizes) :]
    if len(values) > given[0] + 1 + len(after):
        raise ShapeError(
            f"values {show(values)} have more dimensions than a mask selects of {show(self.sizes)}"
        )
    fit_into("values", values[max(len(values) - len(after), 0) :], after)
    if len(values) > len(after):
        size, most = values[len(values) - len(after) - 1], mask.numel()
        if type(size) is int and type(most) is int and size > max(most, 1):
            raise ShapeError(
                f"values {show(values)} are more than a mask {show(mask.sizes)} can select"
            )
        fit_into("values", values[: len(values) - len(after) - 1], self.sizes[: given[0]])


def index_put(
    self: TensorSpec,
    indices: Sequence[TensorSpec | None],
    values: TensorSpec,
    accumulate: bool = False,
) -> TensorSpec:
    """A copy of ``self`` with values, broadcast, written (or added) where the indices say."""
    if values.dtype is not self.dtype:
        raise DtypeError(f"values are of {values.dtype}, self of {self.dtype}")
    _values_checks(self, indices, values.sizes)
    return laid_out_like(self)


_both("index_put.default", index_put, overlapping=True, padding=index_writes.index_put)


@rule("aten._index_put_impl_.default")
def index_put_impl_(
    self: TensorSpec,
    indices: Sequence[TensorSpec | None],
    values: TensorSpec,
    accumulate: bool = False,
    unsafe: bool = False,
) -> TensorSpec:
    """``index_put_`` itself."""
    index_put(self, indices, values, accumulate)
    return self


@rule("aten._unsafe_index_put.default", padding=index_writes.index_put)
def unsafe_index_put(
    self: TensorSpec,
    indices: Sequence[TensorSpec | None],
    values: TensorSpec,
    accumulate: bool = False,
) -> TensorSpec:
    """``index_put`` without checks of the indices."""
    return index_put(self, indices, values, accumulate)


def _never_empty(self: TensorSpec, indices: Sequence[TensorSpec | None]) -> TensorSpec:
    """``self`` with something to index, since of an empty tensor nothing is read: what the mask
    leaves out is.
    """
    indexed = [i < len(indices) and indices[i] is not None for i in range(len(self.sizes))]
    return self.fresh(
        tuple(
            at_least_one(size) if at else size for size, at in zip(self.sizes, indexed, strict=True)
        )
    )


@rule("aten._unsafe_masked_index.default")
def unsafe_masked_index(
    self: TensorSpec, mask: TensorSpec, indices: Sequence[TensorSpec | None], fill: Any
) -> TensorSpec:
    """``self[indices]`` with ``fill`` where the mask is false."""
    if mask.dtype is not torch.bool:
        raise DtypeError(f"mask must be bool, got {mask.dtype}")
    sizes = index_plan(NO_CONTEXT, _never_empty(self, indices), indices).sizes
    return self.fresh(broadcast(sizes, mask.sizes))


@rule("aten._unsafe_masked_index_put_accumulate.default")
def unsafe_masked_index_put_accumulate(
    self: TensorSpec, mask: TensorSpec, indices: Sequence[TensorSpec | None], values: TensorSpec
) -> TensorSpec:
    """A copy of ``self`` with values added where the indices say and the mask is true."""
    if mask.dtype is not torch.bool:
        raise DtypeError(f"mask must be bool, got {mask.dtype}")
    if not has_zero(self.sizes):
        sizes = broadcast(values.sizes, mask.sizes)
        fit_into(
            "values", sizes, index_plan(NO_CONTEXT, _never_empty(self, indices), indices).sizes
        )
    return laid_out_like(self)


# --- by mask or flat position ---------------------------------------------------------------------


def _masked_scatter_checks(self: TensorSpec, mask: TensorSpec, source: TensorSpec) -> None:
    if mask.dtype is not torch.bool:
        raise DtypeError(f"mask must be bool, got {mask.dtype}")
    if source.dtype is not self.dtype:
        raise DtypeError(f"source is of {source.dtype}, self of {self.dtype}")


@rule("aten.masked_scatter.default")
def masked_scatter(self: TensorSpec, mask: TensorSpec, source: TensorSpec) -> TensorSpec:
    """A contiguous copy of ``self``, broadcast with the mask, with elements of ``source`` where the
    mask holds.
    """
    _masked_scatter_checks(self, mask, source)
    return self.fresh(broadcast(self.sizes, mask.sizes))


@rule("aten.masked_scatter_.default")
def masked_scatter_(self: TensorSpec, mask: TensorSpec, source: TensorSpec) -> TensorSpec:
    """The same in place."""
    _masked_scatter_checks(self, mask, source)
    fit_into("mask", mask.sizes, self.sizes)
    return self


@rule("aten.masked_scatter_backward.default")
def masked_scatter_backward(
    grad_output: TensorSpec, mask: TensorSpec, sizes: Sequence[Size]
) -> TensorSpec:
    """The gradient of source: what the mask selects, filled up with zeros."""
    if mask.dtype is not torch.bool:
        raise DtypeError(f"mask must be bool, got {mask.dtype}")
    broadcast(grad_output.sizes, mask.sizes)
    return grad_output.fresh(tuple(sizes))


def _need_elements(self: TensorSpec, index: TensorSpec) -> None:
    """Require something to take or to put where there are positions."""
    some = self.numel() >= 1
    if not known(some):
        check((index.numel() == 0) | some, lambda: f"self {show(self.sizes)} has no elements")


def put(
    self: TensorSpec, index: TensorSpec, source: TensorSpec, accumulate: bool = False
) -> TensorSpec:
    """A copy of ``self`` with ``source`` written at positions counted as if it were flat."""
    need_dtype("index", index, (torch.int64,))
    need_same("source", source, "self", self)
    need_equal(index.numel(), source.numel(), "index and source must have as many elements")
    _need_elements(self, index)
    return laid_out_like(self)


_both("put.default", put)


@rule("aten.take.default")
def take(self: TensorSpec, index: TensorSpec) -> TensorSpec:
    """Elements at positions counted as if ``self`` were flat; the sizes of the index."""
    need_dtype("index", index, (torch.int64,))
    _need_elements(self, index)
    return TensorSpec.contiguous(index.sizes, self.dtype, self.device)
