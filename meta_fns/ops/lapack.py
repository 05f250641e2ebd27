"""Requirements of LAPACK on matrices, and the memory layout of its results: column by column."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import layout
from meta_fns.core.checks import COMPLEX, DOUBLES, HALVES, has_zero, need_dtype, need_equal
from meta_fns.core.sizes import Size, at_least_one, known, same, show, sym_min
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import ShapeError

__all__ = [
    "Four",
    "Three",
    "Two",
    "by_columns",
    "codes",
    "in_columns",
    "in_rows",
    "need_matrix",
    "need_square",
    "nothing",
    "smaller",
]

Two = tuple[TensorSpec, TensorSpec]
Three = tuple[TensorSpec, TensorSpec, TensorSpec]
Four = tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec]

_LAPACK = DOUBLES | COMPLEX


def by_columns(sizes: Sequence[Size], dtype: torch.dtype, device: torch.device) -> TensorSpec:
    """Return fresh matrices in column-major layout (fewer than two dimensions: contiguous)."""
    sizes = tuple(sizes)
    if len(sizes) < 2:
        return TensorSpec.contiguous(sizes, dtype, device)
    strides = (*layout.contiguous_strides(sizes)[:-2], 1, at_least_one(sizes[-2]))
    return TensorSpec(sizes, strides, 0, dtype, device)


def in_columns(spec: TensorSpec, sizes: Sequence[Size] | None = None) -> TensorSpec:
    """The same, of the dtype and on the device of ``spec`` (and of its sizes unless told)."""
    return by_columns(spec.sizes if sizes is None else sizes, spec.dtype, spec.device)


def in_rows(
    spec: TensorSpec, sizes: Sequence[Size], dtype: torch.dtype | None = None
) -> TensorSpec:
    """A fresh contiguous tensor, of the dtype (unless told) and on the device of ``spec``."""
    return TensorSpec.contiguous(sizes, dtype or spec.dtype, spec.device)


def codes(spec: TensorSpec, sizes: Sequence[Size]) -> TensorSpec:
    """LAPACK's int32 codes or pivots."""
    return TensorSpec.contiguous(sizes, torch.int32, spec.device)


def nothing(spec: TensorSpec, dtype: torch.dtype | None = None) -> TensorSpec:
    """The empty tensor in place of a result that was not asked for."""
    return TensorSpec.contiguous((0,), dtype or spec.dtype, spec.device)


def need_matrix(name: str, spec: TensorSpec) -> None:
    """Require matrices (in batches or not) of a dtype that LAPACK knows."""
    if len(spec.sizes) < 2:
        raise ShapeError(f"{name} must have at least 2 dimensions, got {show(spec.sizes)}")
    if not (spec.dtype in HALVES and has_zero(spec.sizes)):
        need_dtype(name, spec, _LAPACK)


def need_square(name: str, spec: TensorSpec) -> None:
    """Require square matrices."""
    need_matrix(name, spec)
    need_equal(spec.sizes[-2], spec.sizes[-1], f"{name} must be square")


def smaller(a: Size, b: Size) -> Size:
    """The smaller of two sizes in its simplest form."""
    if same(a, b):
        return a
    return a if known(a <= b) else b if known(b <= a) else sym_min(a, b)
