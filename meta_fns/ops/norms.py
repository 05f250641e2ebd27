"""Norms of vectors, and tensors scaled by their norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.checks import need_nonempty
from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import rule
from meta_fns.core.sizes import show
from meta_fns.core.spec import TensorSpec
from meta_fns.core.type_promotion import is_float, to_real
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.reductions import reduce_to, reduced_dims
from meta_fns.padding import reductions as padded_reductions

__all__: list[str] = []


@rule("aten.linalg_vector_norm.default", padding=padded_reductions.norm)
def vector_norm(
    self: TensorSpec,
    ord: Any = 2,  # noqa: A002 - name of the schema
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> TensorSpec:
    """The norm over ``dim``: real, in the precision of the input or of ``dtype``."""
    if not is_float(self.dtype):
        raise DtypeError(f"needs a floating or complex tensor, got {self.dtype}")
    if dtype is not None:
        if not is_float(dtype) or dtype.is_complex != self.dtype.is_complex:
            raise DtypeError(f"dtype {dtype} does not fit an input of {self.dtype}")
        if torch.promote_types(self.dtype, dtype) is not dtype:
            raise DtypeError(f"dtype {dtype} is narrower than the input's {self.dtype}")
    if isinstance(ord, complex):
        raise DtypeError("a norm's order must be real")
    if ord < 0 or math.isinf(ord):
        # These have no value over nothing.
        gone = reduced_dims(dim, len(self.sizes))
        if self.sizes and (dim or dim is None):
            need_nonempty("self", self, sorted(gone))
    return reduce_to(self, dim, keepdim, to_real(dtype or self.dtype))


@rule("aten.norm.ScalarOpt_dim", name="norm", padding=padded_reductions.norm_of)
def norm_dim(self: TensorSpec, p: Any, dim: Sequence[int], keepdim: bool = False) -> TensorSpec:
    """The norm over ``dim``."""
    return vector_norm(self, 2 if p is None else p, dim, keepdim)


@rule("aten.norm.Scalar", padding=padded_reductions.norm_of)
def norm(self: TensorSpec, p: Any = 2) -> TensorSpec:
    """The norm of all elements."""
    return vector_norm(self, p, [], False)


@rule("aten.norm.ScalarOpt_dim_dtype", name="norm", padding=padded_reductions.norm_of)
def norm_dim_dtype(
    self: TensorSpec, p: Any, dim: Sequence[int], keepdim: bool = False, *, dtype: torch.dtype
) -> TensorSpec:
    """The norm over ``dim``, in ``dtype``."""
    return vector_norm(self, 2 if p is None else p, dim, keepdim, dtype=dtype)


@rule("aten.renorm.default")
def renorm(self: TensorSpec, p: Any, dim: int, maxnorm: Any) -> TensorSpec:
    """Slices along ``dim`` scaled down to a norm of at most ``maxnorm``."""
    if not is_float(self.dtype):
        raise DtypeError(f"not implemented for {self.dtype}")
    if not p > 0:  # NaN, too
        raise ShapeError(f"p must be positive, got {p}")
    if maxnorm < 0:
        raise ShapeError(f"maxnorm must not be negative, got {maxnorm}")
    if len(self.sizes) < 2:
        raise ShapeError(f"needs at least 2 dimensions, got {show(self.sizes)}")
    at = wrap_dim(dim, len(self.sizes))
    if math.isinf(p):
        need_nonempty("self", self, [d for d in range(len(self.sizes)) if d != at])
    return self.fresh()
