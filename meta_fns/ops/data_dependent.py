"""Ops whose output sizes depend on data, or that read a number from data: each asks the context
for an unknown size or number with the bounds that hold.

A zero-sized input has no data: its result is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core import layout
from meta_fns.core.broadcasting import broadcast
from meta_fns.core.checks import INTS, has_zero, need_dtype, need_equal
from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import Context, rule
from meta_fns.core.sizes import (
    Size,
    at_least_one,
    check,
    holds_here,
    known,
    same_shape,
    show,
    sym_max,
    sym_min,
)
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, ShapeError, UnsupportedOp
from meta_fns.padding.rearranging import one_hot as one_hot_padding

__all__ = ["nonzero"]


def _some_of(ctx: Context, total: Size, least: Size = 0) -> Size:
    """An unknown number of ``total`` things, at least ``least``."""
    return 0 if type(total) is int and total == 0 else ctx.new_size(least, total)


def _count_of(ctx: Context, counted: TensorSpec, total: Size) -> Size:
    """Return the number of non-zero elements."""
    return 0 if type(total) is int and total == 0 else ctx.count_of(counted, 0, total)


@rule("aten.nonzero.default", "aten.argwhere.default", data_dependent=True)
def nonzero(ctx: Context, self: TensorSpec) -> TensorSpec:
    """The positions of elements that are not 0, one a row: ``(u, dim)``, in columns as they are
    found.
    """
    n = len(self.sizes)
    count = _count_of(ctx, self, self.numel())
    # Eager fills the columns one after the other; no element is addressed through the stride of an
    # empty result.
    stride = count if self.device.type == "cpu" and type(count) is int else at_least_one(count)
    return TensorSpec((count, n), (1, stride), 0, torch.int64, self.device)


@rule("aten.one_hot.default", data_dependent=True, padding=one_hot_padding)
def one_hot(ctx: Context, self: TensorSpec, num_classes: Size = -1) -> TensorSpec:
    """A row of 0 with a single 1 for each class number; -1 classes: as many as the data need."""
    if self.dtype is not torch.int64:
        raise DtypeError(f"class numbers must be int64, got {self.dtype}")
    if type(num_classes) is int and num_classes == -1:
        check(
            self.numel() != 0, lambda: "the number of classes of an empty tensor cannot be inferred"
        )
        num_classes = ctx.new_size(1, None)
    else:
        check(num_classes >= 1, lambda: f"there must be at least one class, got {num_classes}")
    return TensorSpec.contiguous((*self.sizes, num_classes), torch.int64, self.device)


@rule("aten.nonzero_static.default")
def nonzero_static(self: TensorSpec, *, size: Size, fill_value: int = -1) -> TensorSpec:
    """The positions of elements that are not 0, cut or filled up to ``size`` rows."""
    check(size >= 0, lambda: f"size must not be negative, got {size}")
    n = len(self.sizes)
    if self.device.type == "cpu":
        return TensorSpec.contiguous((size, n), torch.int64, self.device)
    return TensorSpec((size, n), (1, at_least_one(size)), 0, torch.int64, self.device)


@rule("aten.masked_select.default", data_dependent=True)
def masked_select(ctx: Context, self: TensorSpec, mask: TensorSpec) -> TensorSpec:
    """The elements where the mask, broadcast with self, holds."""
    if mask.dtype is not torch.bool:
        raise DtypeError(f"mask must be bool, got {mask.dtype}")
    sizes = broadcast(self.sizes, mask.sizes)
    total = self.fresh(sizes).numel()
    count = _count_of(ctx, mask, total) if same_shape(mask.sizes, sizes) else _some_of(ctx, total)
    return TensorSpec.contiguous((count,), self.dtype, self.device)


def _unique_of(self: TensorSpec, count: Size) -> TensorSpec:
    return TensorSpec.contiguous((count,), self.dtype, self.device)


def _vector(self: TensorSpec, sizes: Sequence[Size]) -> TensorSpec:
    return TensorSpec.contiguous(sizes, torch.int64, self.device)


@rule("aten._unique2.default", data_dependent=True)
def unique2(
    ctx: Context,
    self: TensorSpec,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """The distinct values; the position of each element among them; how often each occurs."""
    total = self.numel()
    count = _some_of(ctx, total, _at_least(total))
    inverse = _vector(self, self.sizes if return_inverse else (0,))
    return _unique_of(self, count), inverse, _vector(self, (count if return_counts else 0,))


def _at_least(total: Size) -> Size:
    """The fewest distinct values among ``total``: 1 unless there is none."""
    return sym_min(total, 1) if not known(total >= 1) else 1


@rule("aten._unique.default", data_dependent=True)
def unique(
    ctx: Context, self: TensorSpec, sorted: bool = True, return_inverse: bool = False
) -> tuple[TensorSpec, TensorSpec]:
    """The distinct values; the position of each element among them."""
    values, inverse, _ = unique2(ctx, self, sorted, return_inverse)
    return values, inverse


@rule("aten.unique_consecutive.default", data_dependent=True)
def unique_consecutive(
    ctx: Context,
    self: TensorSpec,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """The values without repetitions of their neighbour, flat or as slices along ``dim``."""
    if dim is not None and not (len(self.sizes) == 1 and dim == 0):
        return unique_dim(ctx, self, dim, True, return_inverse, return_counts)
    total = self.numel()
    count = _some_of(ctx, total, _at_least(total))
    inverse = _vector(self, self.sizes if return_inverse else (0,))
    return _unique_of(self, count), inverse, _vector(self, (count if return_counts else 0,))


@rule("aten.unique_dim.default", "aten.unique_dim_consecutive.default", data_dependent=True)
def unique_dim(
    ctx: Context,
    self: TensorSpec,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """The distinct slices along ``dim``."""
    at = wrap_dim(dim, len(self.sizes))
    size = self.sizes[at] if self.sizes else 1
    others = self.sizes[:at] + self.sizes[at + 1 :]
    if type(size) is int and size == 0:
        if has_zero(others):
            raise ShapeError(f"only dimension {at} may be of size 0 here: {show(self.sizes)}")
        empty = _vector(self, (0,))
        return self.fresh(), empty, empty
    if has_zero(others):
        raise ShapeError(f"there are {size} slices of {show(self.sizes)} without elements")
    count = _some_of(ctx, size, _at_least(size))
    # Slices are gathered along a first dimension, which then goes back to its place.
    front = layout.contiguous_strides((count, *others))
    strides = (*front[1 : at + 1], front[0], *front[at + 1 :])
    sizes = (*self.sizes[:at], count, *self.sizes[at + 1 :]) if self.sizes else (count,)
    values = TensorSpec(sizes, strides, 0, self.dtype, self.device)
    # The CPU computes both whether asked for or not.
    always = self.device.type == "cpu"
    inverse = _vector(self, (size if return_inverse or always else 0,))
    return values, inverse, _vector(self, (count if return_counts or always else 0,))


@rule("aten.repeat_interleave.Tensor", data_dependent=True)
def repeat_interleave(
    ctx: Context, repeats: TensorSpec, *, output_size: Size | None = None
) -> TensorSpec:
    """``i`` as many times as ``repeats[i]`` says; their sum is ``output_size`` if that is known."""
    need_dtype("repeats", repeats, (torch.int64, torch.int32))
    if len(repeats.sizes) != 1:
        raise ShapeError(f"repeats must be a vector, got {show(repeats.sizes)}")
    if type(repeats.sizes[0]) is int and repeats.sizes[0] == 0:
        return TensorSpec(repeats.sizes, repeats.strides, 0, repeats.dtype, repeats.device)
    total = ctx.new_size(0, None) if output_size is None else output_size
    return TensorSpec.contiguous((total,), repeats.dtype, repeats.device)


@rule("aten.bincount.default", data_dependent=True)
def bincount(
    ctx: Context, self: TensorSpec, weights: TensorSpec | None = None, minlength: Size = 0
) -> TensorSpec:
    """Count how often each number occurs, up to the largest one; at least ``minlength`` counts."""
    need_dtype("self", self, INTS)
    if len(self.sizes) != 1:
        raise ShapeError(f"self must be a vector, got {show(self.sizes)}")
    check(minlength >= 0, lambda: f"minlength must not be negative, got {minlength}")
    total = self.sizes[0]
    if (type(total) is int or weights is not None or holds_here(total >= 1)) and total == 0:
        # Weights say nothing of the dtype then; elsewhere the answer, that there is a count, is
        # worth the question.
        return TensorSpec.contiguous((minlength,), torch.int64, self.device)
    if weights is not None:
        if len(weights.sizes) != 1:
            raise ShapeError(f"weights must be a vector, got {show(weights.sizes)}")
        need_equal(self.sizes[0], weights.sizes[0], "self and weights")
    dtype = torch.int64
    if weights is not None:
        dtype = weights.dtype if weights.dtype is torch.float32 else torch.float64
    return TensorSpec.contiguous(
        (ctx.new_size(sym_max(minlength, _at_least(total)), None),), dtype, self.device
    )


@rule("aten._is_all_true.default", "aten._is_any_true.default", name="truth of all elements")
def is_all_true(self: TensorSpec) -> TensorSpec:
    """Return whether all (any) bools are true: a 0-d tensor."""
    need_dtype("self", self, (torch.bool,))
    return TensorSpec.contiguous((), torch.bool, self.device)


@rule("aten.allclose.default", data_dependent=True)
def allclose(ctx: Context, self: TensorSpec, other: TensorSpec, *options: Any, **named: Any) -> Any:
    """Return whether two tensors are (nearly) equal: a Python bool that depends on data."""
    return ctx.new_bool()


_RANGES = {
    torch.uint8: (0, 255),
    torch.int8: (-128, 127),
    torch.int16: (-(2**15), 2**15 - 1),
    torch.int32: (-(2**31), 2**31 - 1),
    torch.int64: (None, None),
    torch.uint16: (0, 2**16 - 1),
    torch.uint32: (0, 2**32 - 1),
    torch.uint64: (0, None),
}


@rule(
    "aten._local_scalar_dense.default",
    "aten.item.default",
    name="the one element",
    data_dependent=True,
)
def local_scalar_dense(ctx: Context, self: TensorSpec) -> Any:
    """The one element as an unknown number of the dtype's kind, within the dtype's range."""
    if self.sizes:
        check(self.numel() == 1, lambda: f"a tensor of sizes {show(self.sizes)} is not one number")
    if self.dtype is torch.bool:
        return ctx.new_bool()
    if self.dtype.is_floating_point:
        return ctx.new_float()
    if self.dtype in _RANGES:
        return ctx.new_int(*_RANGES[self.dtype])
    raise UnsupportedOp(f"a Python number from {self.dtype}")


@rule("aten.is_nonzero.default", data_dependent=True)
def is_nonzero(ctx: Context, self: TensorSpec) -> Any:
    """Return whether the one element is not 0."""
    if self.sizes:
        check(self.numel() == 1, lambda: f"a tensor of sizes {show(self.sizes)} has no truth value")
    return ctx.new_bool()
