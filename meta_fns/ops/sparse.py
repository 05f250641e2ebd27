"""Sparse tensors: sizes, dtype and layout (a spec says nothing of how many elements are stored;
strides are empty).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.checks import need_equal, need_rank, need_same, need_sizes
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import ShapeError

__all__: list[str] = []

_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def _sparse(
    spec: TensorSpec, layout: torch.layout, sizes: Sequence[Size] | None = None
) -> TensorSpec:
    return TensorSpec(
        spec.sizes if sizes is None else tuple(sizes), (), 0, spec.dtype, spec.device, layout
    )


@rule("aten._to_sparse.default")
def to_sparse(
    self: TensorSpec,
    *,
    layout: torch.layout | None = None,
    blocksize: Sequence[int] | None = None,
    dense_dim: int | None = None,
) -> TensorSpec:
    """A tensor in a sparse layout (coordinates unless told)."""
    layout = layout or torch.sparse_coo
    if layout in _COMPRESSED and len(self.sizes) < 2:
        raise ShapeError(f"{layout} needs at least 2 dimensions, got {show(self.sizes)}")
    return _sparse(self, layout)


@rule("aten._to_sparse.sparse_dim")
def to_sparse_dim(self: TensorSpec, sparse_dim: int) -> TensorSpec:
    """A tensor by coordinates of its first ``sparse_dim`` dimensions."""
    if sparse_dim < 0 or sparse_dim > len(self.sizes) or (sparse_dim == 0 and self.sizes):
        raise ShapeError(
            f"sparse_dim {sparse_dim} is out of range for {len(self.sizes)} dimensions"
        )
    return _sparse(self, torch.sparse_coo)


@rule("aten.sparse_mask.default")
def sparse_mask(self: TensorSpec, mask: TensorSpec) -> TensorSpec:
    """The elements of ``self`` that a sparse mask stores."""
    need_sizes("mask", mask, self.sizes)
    return _sparse(self, mask.layout)


@rule("aten.sparse_sampled_addmm.default")
def sparse_sampled_addmm(
    self: TensorSpec, mat1: TensorSpec, mat2: TensorSpec, *, beta: Any = 1, alpha: Any = 1
) -> TensorSpec:
    """A product computed where ``self`` stores elements."""
    need_same("mat1", mat1, "self", self)
    need_same("mat2", mat2, "self", self)
    if len(mat1.sizes) < 2 or len(mat2.sizes) < 2:
        raise ShapeError(f"mat1 {show(mat1.sizes)} and mat2 {show(mat2.sizes)} must be matrices")
    need_equal(mat1.sizes[-1], mat2.sizes[-2], f"{show(mat1.sizes)} @ {show(mat2.sizes)}")
    need_equal(self.sizes[-2], mat1.sizes[-2], "self and mat1")
    need_equal(self.sizes[-1], mat2.sizes[-1], "self and mat2")
    return _sparse(self, self.layout)


@rule("aten._sparse_mm_reduce_impl.default")
def sparse_mm_reduce(
    self: TensorSpec, other: TensorSpec, reduce: str
) -> tuple[TensorSpec, TensorSpec]:
    """A product of a sparse matrix whose sums are another reduction; and, for a gradient, which
    element was taken.
    """
    need_rank("self", self, 2)
    need_rank("other", other, 2)
    need_equal(self.sizes[1], other.sizes[0], f"{show(self.sizes)} @ {show(other.sizes)}")
    result = TensorSpec.contiguous((self.sizes[0], other.sizes[1]), self.dtype, self.device)
    return result, TensorSpec.contiguous((0,), torch.int64, self.device)


@rule("aten._sparse_mm_reduce_impl_backward.default")
def sparse_mm_reduce_backward(
    self: TensorSpec,
    grad_out: TensorSpec,
    weight: TensorSpec,
    reduce: str,
    arg_out: TensorSpec,
    output_mask: Sequence[bool],
) -> tuple[TensorSpec | None, TensorSpec | None]:
    """The gradients that are asked for of the sparse matrix and of the dense one."""
    dense = weight.fresh() if output_mask[1] else None
    return _sparse(self, self.layout) if output_mask[0] else None, dense
