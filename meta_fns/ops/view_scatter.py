"""Writing into a view of a copy (``slice_scatter``, ...), and gradients of views: zeros with the
gradient in place.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import dense
from meta_fns.core.broadcasting import expand
from meta_fns.core.checks import fit_into, has_zero, need_dtype, need_sizes
from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, check, known, same, same_shape, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import ShapeError
from meta_fns.ops.slicing import diagonal, select, slice_tensor
from meta_fns.ops.views import as_strided
from meta_fns.padding import gradients, index_writes
from meta_fns.padding.rearranging import diagonal_scatter as diagonal_scatter_padding

__all__ = ["copy_preserving"]


def copy_preserving(self: TensorSpec) -> TensorSpec:
    """A copy with the same strides and offset, or, if elements share memory, a plain clone."""
    for size, stride in zip(self.sizes, self.strides, strict=True):
        if (
            type(stride) is int
            and stride == 0
            and not known(size <= 1)
            and size > 1
            and not has_zero(self.sizes)
        ):
            return TensorSpec(
                self.sizes,
                dense.like_strides(self.sizes, self.strides, None),
                0,
                self.dtype,
                self.device,
            )
    return self


def _zeros(grad: TensorSpec, sizes: Sequence[Size]) -> TensorSpec:
    return TensorSpec.contiguous(sizes, grad.dtype, grad.device)


def _fits(grad: TensorSpec, view: TensorSpec) -> None:
    """Require that ``grad`` can be copied into ``view``."""
    if not same_shape(grad.sizes, view.sizes):
        expand(grad.sizes, grad.strides, view.sizes)


@rule("aten.slice_scatter.default", padding=index_writes.slice_scatter)
def slice_scatter(
    self: TensorSpec,
    src: TensorSpec,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> TensorSpec:
    """A copy of ``self`` with ``src`` in its slice."""
    need_sizes("src", src, slice_tensor(self, dim, start, end, step).sizes)
    return copy_preserving(self)


@rule("aten.select_scatter.default", padding=index_writes.select_scatter)
def select_scatter(self: TensorSpec, src: TensorSpec, dim: int, index: Size) -> TensorSpec:
    """A copy of ``self`` with ``src`` at one index of a dimension."""
    need_sizes("src", src, select(self, dim, index).sizes)
    return copy_preserving(self)


@rule("aten.diagonal_scatter.default", padding=diagonal_scatter_padding)
def diagonal_scatter(
    self: TensorSpec, src: TensorSpec, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> TensorSpec:
    """A copy of ``self`` with ``src`` on a diagonal."""
    need_sizes("src", src, diagonal(self, offset, dim1, dim2).sizes)
    return copy_preserving(self)


@rule("aten.as_strided_scatter.default")
def as_strided_scatter(
    self: TensorSpec,
    src: TensorSpec,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> TensorSpec:
    """A copy of ``self`` with ``src`` at the elements that a strided view names."""
    need_sizes("src", src, as_strided(self, size, stride, storage_offset).sizes)
    return copy_preserving(self)


@rule("aten.slice_backward.default", padding=gradients.slice_of)
def slice_backward(
    grad_output: TensorSpec,
    input_sizes: Sequence[Size],
    dim: int,
    start: Size,
    end: Size,
    step: Size,
) -> TensorSpec:
    """Zeros of ``input_sizes`` with the gradient in the slice."""
    result = _zeros(grad_output, input_sizes)
    _fits(grad_output, slice_tensor(result, dim, start, end, step))
    return result


@rule("aten.select_backward.default", padding=gradients.select)
def select_backward(
    grad_output: TensorSpec, input_sizes: Sequence[Size], dim: int, index: Size
) -> TensorSpec:
    """Zeros of ``input_sizes`` with the gradient at one index of a dimension."""
    result = _zeros(grad_output, input_sizes)
    _fits(grad_output, select(result, dim, index))
    return result


@rule("aten.diagonal_backward.default", padding=gradients.diagonal)
def diagonal_backward(
    grad_output: TensorSpec, input_sizes: Sequence[Size], offset: int, dim1: int, dim2: int
) -> TensorSpec:
    """Zeros of ``input_sizes`` with the gradient on a diagonal."""
    result = _zeros(grad_output, input_sizes)
    _fits(grad_output, diagonal(result, offset, dim1, dim2))
    return result


@rule("aten.unfold_backward.default")
def unfold_backward(
    grad_in: TensorSpec, input_sizes: Sequence[Size], dim: int, size: int, step: int
) -> TensorSpec:
    """Zeros of ``input_sizes`` to which the windows of the gradient are added."""
    at = wrap_dim(dim, len(input_sizes))
    if step < 1:
        raise ShapeError(f"step must be positive, got {step}")
    if not input_sizes:
        fit_into("the gradient", grad_in.sizes, (1,))
    elif len(grad_in.sizes) != len(input_sizes) + 1:
        raise ShapeError(
            f"gradient {show(grad_in.sizes)} does not fit windows of {show(input_sizes)}"
        )
    for d, wanted in enumerate(input_sizes):
        if d != at:
            fit_into("the gradient", grad_in.sizes[d : d + 1], (wanted,))
    return _zeros(grad_in, input_sizes)


@rule("aten.embedding_dense_backward.default", padding=gradients.embedding)
def embedding_dense_backward(
    grad_output: TensorSpec,
    indices: TensorSpec,
    num_weights: Size,
    padding_idx: Size,
    scale_grad_by_freq: bool,
) -> TensorSpec:
    """The rows of the gradient summed by index: ``(*, h), (*,) -> (num_weights, h)``."""
    need_dtype("indices", indices, (torch.int64, torch.int32))
    if not grad_output.sizes:
        raise ShapeError("the gradient must have at least 1 dimension")
    h = grad_output.sizes[-1]
    if not same_shape(grad_output.sizes[:-1], indices.sizes):
        count, rows = indices.numel(), grad_output.numel()
        if not same(count * h, rows):
            check(
                count * h == rows,
                lambda: f"gradient {show(grad_output.sizes)} does not fit {show(indices.sizes)}",
            )
    return _zeros(grad_output, (num_weights, h))
