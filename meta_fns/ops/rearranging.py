"""Copies in another order or cut in pieces: flip, roll, rot90, split; resizing in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import layout
from meta_fns.core.checks import has_zero, need_equal, need_nonempty
from meta_fns.core.dims import wrap_dim, wrap_dims
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, check, known, same_shape, show
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import laid_out_like
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.joining import common_format
from meta_fns.ops.slicing import split, split_with_sizes
from meta_fns.padding import rearranging as padded_rearranging
from meta_fns.padding import slicing as padded_slicing

__all__: list[str] = []


@rule("aten.flip.default", padding=padded_rearranging.flip)
def flip(self: TensorSpec, dims: Sequence[int]) -> TensorSpec:
    """The dimensions in reverse, laid out like the input."""
    wrap_dims(dims, len(self.sizes))
    return laid_out_like(self)


@rule("aten.roll.default", padding=padded_rearranging.roll)
def roll(self: TensorSpec, shifts: Sequence[Size], dims: Sequence[int] = ()) -> TensorSpec:
    """Elements shifted around along dimensions (or as if flat)."""
    on_cpu = self.device.type == "cpu"
    if not dims and len(shifts) == 1:
        flat_and_empty = on_cpu and len(self.sizes) == 1 and has_zero(self.sizes)
        return laid_out_like(self) if flat_and_empty else self.fresh()
    if not shifts or len(shifts) != len(dims):
        raise ShapeError(f"roll needs as many shifts as dims, got {list(shifts)} and {list(dims)}")
    for d in dims:
        wrap_dim(d, len(self.sizes))
    if not self.sizes:
        raise ShapeError("roll along a dimension does not apply to 0-d tensors")
    if not on_cpu:  # ATen/native/cuda/TensorTransformations.cu makes its input contiguous first
        return self.fresh()
    if has_zero(self.sizes):
        return laid_out_like(self)
    if len(self.sizes) not in (4, 5) or self.canonical():
        return self.fresh()
    for shift, d in zip(shifts, dims, strict=True):
        if self.sizes[wrap_dim(d, len(self.sizes))] == 0:  # nothing is moved by a remainder of 0
            return laid_out_like(self)
        self = _rolled(self, shift, wrap_dim(d, len(self.sizes)))
    return self


def _rolled(self: TensorSpec, shift: Size, at: int) -> TensorSpec:
    """The two pieces along one dimension, joined in the other order, in the memory format of
    both.
    """
    size = self.sizes[at]
    start = (size - shift) % size
    lead, rest = self.sizes[:at], self.sizes[at + 1 :]
    pieces = [self.view((*lead, each, *rest), self.strides) for each in (size - start, start)]
    return self.view(self.sizes, layout.strides_of_format(self.sizes, common_format(pieces)), 0)


@rule("aten.rot90.default")
def rot90(self: TensorSpec, k: int = 1, dims: Sequence[int] = (0, 1)) -> TensorSpec:
    """A rotation by ``k`` quarter turns in the plane of two dimensions."""
    if len(dims) != 2 or len(self.sizes) < 2:
        raise ShapeError(f"rot90 needs two dimensions, got {list(dims)} of {show(self.sizes)}")
    a, b = (wrap_dim(d, len(self.sizes)) for d in dims)
    if a == b:
        raise ShapeError(f"rot90 needs two dimensions, got {list(dims)}")
    if k % 4 == 0:
        return self.fresh()
    flipped = laid_out_like(self)
    if k % 4 == 2:
        return flipped
    sizes, strides = list(flipped.sizes), list(flipped.strides)
    sizes[a], sizes[b] = sizes[b], sizes[a]
    strides[a], strides[b] = strides[b], strides[a]
    return flipped.view(tuple(sizes), tuple(strides))


@rule("aten.narrow_copy.default")
def narrow_copy(self: TensorSpec, dim: int, start: Size, length: Size) -> TensorSpec:
    """A contiguous copy of ``length`` elements from ``start`` along ``dim``."""
    if not self.sizes:
        raise ShapeError("narrow does not apply to 0-d tensors")
    at = wrap_dim(dim, len(self.sizes))
    size = self.sizes[at]
    check(length >= 0, lambda: f"length must not be negative, got {length}")
    if not known(start >= 0) and start < 0:
        start = start + size
    fits = (start >= 0) & (start + length <= size)
    if not known(fits):
        check(
            fits,
            lambda: (
                f"{length} elements from {start} do not fit into dimension {at} of "
                f"{show(self.sizes)}"
            ),
        )
    return self.fresh((*self.sizes[:at], length, *self.sizes[at + 1 :]))


@rule("aten.unsafe_split.Tensor", padding=padded_slicing.pieces)
def unsafe_split(self: TensorSpec, split_size: Size, dim: int = 0) -> list[TensorSpec]:
    """``split`` whose pieces do not count as views."""
    return list(split(self, split_size, dim))


@rule("aten.unsafe_split_with_sizes.default", padding=padded_slicing.pieces)
def unsafe_split_with_sizes(
    self: TensorSpec, split_sizes: Sequence[Size], dim: int = 0
) -> list[TensorSpec]:
    """``split_with_sizes`` whose pieces do not count as views."""
    return list(split_with_sizes(self, split_sizes, dim))


@rule("aten._chunk_cat.default")
def chunk_cat(tensors: Sequence[TensorSpec], dim: int, num_chunks: int) -> TensorSpec:
    """Each tensor padded, cut into chunks along ``dim``, flattened from there, joined:
    ``(*lead, chunks, size)``.
    """
    if num_chunks < 1 or not tensors:
        raise ShapeError("needs at least one tensor and one chunk")
    dtype, device = tensors[0].dtype, tensors[0].device
    at = wrap_dim(dim, len(tensors[0].sizes))
    lead = tensors[0].sizes[:at]
    total: Size = 0
    for tensor in tensors:
        if len(tensor.sizes) <= at:
            raise ShapeError(f"{show(tensor.sizes)} has no dimension {at}")
        for a, b in zip(tensor.sizes[:at], lead, strict=True):
            need_equal(
                a, b, f"{show(tensor.sizes)} and {show(tensors[0].sizes)} before dimension {at}"
            )
        need_nonempty("a tensor", tensor, range(len(tensor.sizes)))
        rows = (tensor.sizes[at] + num_chunks - 1) // num_chunks
        for size in tensor.sizes[at + 1 :]:
            rows = rows * size
        total = total + rows
        if tensor.dtype is not dtype:
            raise DtypeError(f"tensors are of {dtype} and {tensor.dtype}")
    return TensorSpec.contiguous((*lead, num_chunks, total), dtype, device)


@rule("aten.resize_.default")
def resize_(
    self: TensorSpec, size: Sequence[Size], *, memory_format: torch.memory_format | None = None
) -> TensorSpec:
    """``self`` with other sizes, contiguous unless the sizes are its own (or in a memory
    format).
    """
    for item in size:
        check(item >= 0, lambda: f"a negative size in {show(size)}")
    if memory_format is torch.preserve_format:
        raise ShapeError("preserve_format is not for resize_")
    sizes = tuple(size)
    same = same_shape(self.sizes, sizes)
    if memory_format is None:
        if same:
            return self
        return self.view(sizes, layout.contiguous_strides(sizes))
    return self.view(sizes, layout.strides_of_format(sizes, memory_format))


@rule("aten.resize_as_.default")
def resize_as_(
    self: TensorSpec, the_template: TensorSpec, *, memory_format: torch.memory_format | None = None
) -> TensorSpec:
    """``self`` with the sizes of another tensor."""
    if memory_format is torch.preserve_format:
        memory_format = layout.suggested_format(the_template.sizes, the_template.strides)
    result = resize_(self, the_template.sizes)
    if memory_format is None:
        return result
    return result.view(result.sizes, layout.strides_of_format(result.sizes, memory_format))
