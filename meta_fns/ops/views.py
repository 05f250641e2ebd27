"""Views of all elements: other sizes and strides, or another dtype, over the same storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core import broadcasting, layout, view_strides
from meta_fns.core.dims import wrap_dim, wrap_dims
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, at_least_one, check, holds_here, known, same_shape, show
from meta_fns.core.spec import TensorSpec
from meta_fns.core.type_promotion import to_complex, to_real
from meta_fns.errors import DtypeError, ShapeError, UnsupportedOp
from meta_fns.padding import views as padded_views

__all__ = ["as_strided", "view"]


@rule(
    "aten.alias.default",
    "aten.detach.default",
    "aten.lift_fresh.default",
    "aten.lift.default",
    "aten._neg_view.default",
    "aten.resolve_conj.default",
    "aten.resolve_neg.default",
    "aten._fw_primal.default",
    name="same metadata",
    padding=padded_views.same,
)
def alias(self: TensorSpec, *rest: Any) -> TensorSpec:
    """The same metadata."""
    return self


@rule("aten._conj.default")
def conj(self: TensorSpec) -> TensorSpec:
    """The conjugate, lazily: the same metadata."""
    if not self.dtype.is_complex:
        raise DtypeError(f"the conjugate view is of complex tensors only, got {self.dtype}")
    return self


@rule(
    "aten.t.default",
    "aten.numpy_T.default",
    name="transpose",
    padding=padded_views.transposed_matrix,
)
def t(self: TensorSpec) -> TensorSpec:
    """The transpose of a matrix; vectors and scalars as they are."""
    n = len(self.sizes)
    if n > 2:
        raise ShapeError(f"t needs at most 2 dimensions, got {show(self.sizes)}")
    return self if n < 2 else self.view(self.sizes[::-1], self.strides[::-1])


@rule(
    "aten.transpose.int",
    "aten.swapaxes.default",
    "aten.swapdims.default",
    padding=padded_views.transpose,
)
def transpose(self: TensorSpec, dim0: int, dim1: int) -> TensorSpec:
    """Two dimensions swapped."""
    n = len(self.sizes)
    a, b = wrap_dim(dim0, n), wrap_dim(dim1, n)
    if a == b:
        return self
    sizes, strides = list(self.sizes), list(self.strides)
    sizes[a], sizes[b] = sizes[b], sizes[a]
    strides[a], strides[b] = strides[b], strides[a]
    return self.view(tuple(sizes), tuple(strides))


@rule("aten.permute.default", padding=padded_views.permute)
def permute(self: TensorSpec, dims: Sequence[int]) -> TensorSpec:
    """Dimension i of the result is dimension ``dims[i]``."""
    n = len(self.sizes)
    if len(dims) != n:
        raise ShapeError(f"permute needs {n} dimensions, got {list(dims)}")
    order = wrap_dims(dims, n)
    sizes, strides = self.sizes, self.strides
    return self.view(tuple([sizes[i] for i in order]), tuple([strides[i] for i in order]))


@rule("aten.view.default", "aten._unsafe_view.default", padding=padded_views.view)
def view(self: TensorSpec, size: Sequence[Size]) -> TensorSpec:
    """The same elements under other sizes, one of which may be -1, without copying.

    Raises: ShapeError if the numbers of elements differ or the strides do not allow it.
    """
    sizes = view_strides.infer_sizes(self.sizes, size)
    if self.canonical():
        return TensorSpec(
            sizes,
            layout.contiguous_strides(sizes),
            self.storage_offset,
            self.dtype,
            self.device,
            torch.strided,
            True,
        )
    strides = view_strides.view_strides(self.sizes, self.strides, sizes)
    if strides is None:  # unless sizes are 0 or 1
        strides = view_strides.view_strides_asking(self.sizes, self.strides, sizes)
    if strides is None:
        raise ShapeError(
            f"a tensor of sizes {show(self.sizes)}, strides {show(self.strides)} has no view "
            f"{show(sizes)}"
        )
    return self.view(sizes, strides)


@rule("aten.reshape.default", padding=padded_views.view)
def reshape(self: TensorSpec, shape: Sequence[Size]) -> TensorSpec:
    """A view where one exists, else a contiguous copy."""
    sizes = view_strides.infer_sizes(self.sizes, shape)
    strides = view_strides.view_strides(self.sizes, self.strides, sizes)
    return self.fresh(sizes) if strides is None else self.view(sizes, strides)


@rule("aten.view_copy.default", padding=padded_views.view)
def view_copy(self: TensorSpec, size: Sequence[Size]) -> TensorSpec:
    """A contiguous copy under other sizes."""
    return self.fresh(view_strides.infer_sizes(self.sizes, size))


@rule("aten._reshape_alias.default", padding=padded_views.view)
def reshape_alias(self: TensorSpec, size: Sequence[Size], stride: Sequence[Size]) -> TensorSpec:
    """The view that the caller worked out."""
    return self.view(tuple(size), tuple(stride))


@rule("aten.expand.default", padding=padded_views.expand)
def expand(self: TensorSpec, size: Sequence[Size], *, implicit: bool = False) -> TensorSpec:
    """Dimensions of size 1, and new leading ones, repeated without copying."""
    sizes, strides = broadcasting.expand(self.sizes, self.strides, size)
    return self.view(sizes, strides)


@rule("aten.unsqueeze.default", padding=padded_views.unsqueeze)
def unsqueeze(self: TensorSpec, dim: int) -> TensorSpec:
    """A new dimension of size 1."""
    sizes, strides = self.sizes, self.strides
    at = wrap_dim(dim, len(sizes) + 1)
    if at >= len(sizes):
        stride: Size = 1
    # a symbolic size that may be 0 counts as 1, so that a contiguous tensor stays so by structure;
    # for such an
    else:
        size = sizes[at]  # empty tensor eager says 0, a stride that nothing can be read with
        stride = (size if type(size) is int else at_least_one(size)) * strides[at]
    return self.view((*sizes[:at], 1, *sizes[at:]), (*strides[:at], stride, *strides[at:]))


@rule("aten.squeeze.default", padding=padded_views.squeeze)
def squeeze(self: TensorSpec) -> TensorSpec:
    """Without the dimensions of size 1; asks of each symbolic size whether it is 1."""
    return _without_ones(self, range(len(self.sizes)))


@rule("aten.squeeze.dim", name="squeeze", padding=padded_views.squeeze)
def squeeze_dim(self: TensorSpec, dim: int) -> TensorSpec:
    """Without dimension ``dim`` if its size is 1."""
    return _without_ones(self, [wrap_dim(dim, len(self.sizes))])


@rule("aten.squeeze.dims", name="squeeze", padding=padded_views.squeeze)
def squeeze_dims(self: TensorSpec, dim: Sequence[int]) -> TensorSpec:
    """Without those of the dimensions whose size is 1."""
    return _without_ones(self, wrap_dims(dim, len(self.sizes)))


def _without_ones(self: TensorSpec, dims: Sequence[int]) -> TensorSpec:
    gone = {i for i in dims if i < len(self.sizes) and self.sizes[i] == 1}
    keep = [i for i in range(len(self.sizes)) if i not in gone]
    return self.view(tuple(self.sizes[i] for i in keep), tuple(self.strides[i] for i in keep))


def _end(sizes: Sequence[Size], strides: Sequence[Size], offset: Size) -> Size:
    """Behind the last element: where a tensor that is not empty ends in its storage."""
    end = offset + 1
    for size, stride in zip(sizes, strides, strict=True):
        end = end + (size - 1) * stride
    return end


@rule("aten.as_strided.default")
def as_strided(
    self: TensorSpec,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> TensorSpec:
    """The given sizes, strides and storage offset; within what ``self`` reaches, if that is so in
    this call.
    """
    if len(size) != len(stride):
        raise ShapeError(f"sizes {show(size)} and strides {show(stride)} differ in length")
    for item in size:
        check(item >= 0, lambda: f"a negative size in {show(size)}")
    for item in stride:
        check(item >= 0, lambda: f"a negative stride in {show(stride)}")
    offset = self.storage_offset if storage_offset is None else storage_offset
    inside = _end(size, stride, offset) <= _end(self.sizes, self.strides, self.storage_offset)
    # how far the storage reaches beyond ``self`` is not known
    if not known(inside) and holds_here(inside):
        check(
            inside,
            lambda: (
                f"{show(size)} with strides {show(stride)} reaches beyond self, {show(self.sizes)}"
            ),
        )
    return self.view(tuple(size), tuple(stride), storage_offset)


@rule("aten.view_as_real.default", padding=padded_views.as_real)
def view_as_real(self: TensorSpec) -> TensorSpec:
    """A complex tensor as a real one with a last dimension of 2."""
    if not self.dtype.is_complex:
        raise DtypeError(f"view_as_real needs a complex tensor, got {self.dtype}")
    strides = (*(2 * stride for stride in self.strides), 1)
    return TensorSpec(
        (*self.sizes, 2), strides, self.storage_offset * 2, to_real(self.dtype), self.device
    )


@rule("aten.view_as_complex.default", padding=padded_views.as_complex)
def view_as_complex(self: TensorSpec) -> TensorSpec:
    """A real tensor whose last dimension is of size 2 as a complex one."""
    if self.dtype not in (torch.float16, torch.float32, torch.float64):
        raise DtypeError(f"view_as_complex needs float16, float32 or float64, got {self.dtype}")
    if not self.sizes:
        raise ShapeError("view_as_complex needs at least one dimension")
    check(
        self.sizes[-1] == 2, lambda: f"the last dimension must be of size 2, got {show(self.sizes)}"
    )
    check(self.strides[-1] == 1, lambda: f"the last stride must be 1, got {show(self.strides)}")
    for size, stride in zip(self.sizes[:-1], self.strides[:-1], strict=True):
        even = stride % 2 == 0
        if not known(even):
            check(even | (size <= 1), lambda: f"strides must be even, got {show(self.strides)}")
    check(
        self.storage_offset % 2 == 0,
        lambda: f"the storage offset must be even, got {self.storage_offset}",
    )
    strides = tuple(stride // 2 for stride in self.strides[:-1])
    return TensorSpec(
        self.sizes[:-1], strides, self.storage_offset // 2, to_complex(self.dtype), self.device
    )


@rule("aten.view.dtype", name="view as another dtype")
def view_dtype(self: TensorSpec, dtype: torch.dtype) -> TensorSpec:
    """The same bytes as another dtype; the last dimension shrinks or grows with the size of an
    element.
    """
    old, new = self.dtype.itemsize, dtype.itemsize
    if old == new:
        return self.with_(dtype=dtype)
    if not self.sizes:
        raise ShapeError(f"a 0-d tensor has no view as {dtype}, whose elements are of another size")
    check(self.strides[-1] == 1, lambda: f"the last stride must be 1, got {show(self.strides)}")
    if new < old:
        ratio = old // new
        sizes = (*self.sizes[:-1], self.sizes[-1] * ratio)
        strides = (*(stride * ratio for stride in self.strides[:-1]), 1)
        return TensorSpec(sizes, strides, self.storage_offset * ratio, dtype, self.device)
    ratio = new // old
    check(
        self.sizes[-1] % ratio == 0,
        lambda: f"the last size must be divisible by {ratio}, got {show(self.sizes)}",
    )
    check(
        self.storage_offset % ratio == 0, lambda: f"the storage offset must be divisible by {ratio}"
    )
    for stride in self.strides[:-1]:
        check(
            stride % ratio == 0,
            lambda: f"strides must be divisible by {ratio}, got {show(self.strides)}",
        )
    sizes = (*self.sizes[:-1], self.sizes[-1] // ratio)
    strides = (*(stride // ratio for stride in self.strides[:-1]), 1)
    return TensorSpec(sizes, strides, self.storage_offset // ratio, dtype, self.device)


@rule("aten._has_same_storage_numel.default")
def has_same_storage_numel(self: TensorSpec, other: TensorSpec) -> bool:
    """Return whether the storages of two tensors are known to be of one size.

    Forward differentiation asks this of a value and its tangent.

    A spec does not know the size of a storage. False is always right here: the tangent is then
    copied into memory that fits.
    """
    fits = same_shape(self.sizes, other.sizes) and same_shape(self.strides, other.strides)
    return (
        fits
        and type(self.storage_offset) is type(other.storage_offset) is int
        and self.storage_offset == 0 == other.storage_offset
    )


@rule("aten._new_zeros_with_same_feature_meta.default")
def new_zeros_with_same_feature_meta(
    self: TensorSpec, other: TensorSpec, *, self_num_batch_dims: int = 0
) -> TensorSpec:
    """Return zeros of one tensor's dtype with the memory layout of another: the zeros of a
    tangent.
    """
    if self_num_batch_dims:
        raise UnsupportedOp("batched tangents have no rule")
    return other.with_(dtype=self.dtype, device=self.device)
