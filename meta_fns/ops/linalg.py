"""Functions of matrices: inverses, determinants, exponentials; the cross product; checks of
LAPACK's codes.
"""

from __future__ import annotations

import torch

from meta_fns.core.broadcasting import broadcast
from meta_fns.core.checks import need_contiguous, need_equal, need_same
from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import rule
from meta_fns.core.sizes import show
from meta_fns.core.spec import TensorSpec
from meta_fns.core.type_promotion import to_real
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.lapack import (
    Four,
    Three,
    Two,
    codes,
    in_columns,
    in_rows,
    need_matrix,
    need_square,
)

__all__: list[str] = []


@rule("aten.cholesky_inverse.default")
def cholesky_inverse(self: TensorSpec, upper: bool = False) -> TensorSpec:
    """The inverse from a Cholesky factor."""
    need_square("self", self)
    return in_columns(self)


@rule("aten.linalg_inv_ex.default")
def inv_ex(A: TensorSpec, *, check_errors: bool = False) -> Two:
    """The inverse, and a code for each matrix."""
    need_square("A", A)
    return in_columns(A), codes(A, A.sizes[:-2])


@rule("aten._linalg_det.default")
def det(A: TensorSpec) -> Three:
    """Determinants, and the LU factors they were read off."""
    need_square("A", A)
    return in_rows(A, A.sizes[:-2]), in_columns(A), codes(A, A.sizes[:-1])


@rule("aten._linalg_slogdet.default")
def slogdet(A: TensorSpec) -> Four:
    """Signs and logarithms of determinants, and the LU factors they were read off."""
    need_square("A", A)
    batch = A.sizes[:-2]
    return (
        in_rows(A, batch),
        in_rows(A, batch, to_real(A.dtype)),
        in_columns(A),
        codes(A, A.sizes[:-1]),
    )


@rule("aten.linalg_matrix_exp.default")
def matrix_exp(self: TensorSpec) -> TensorSpec:
    """The exponential of each matrix."""
    if len(self.sizes) < 2:
        raise ShapeError(f"self must have at least 2 dimensions, got {show(self.sizes)}")
    if not (self.dtype.is_floating_point or self.dtype.is_complex):
        raise DtypeError(f"not implemented for {self.dtype}")
    need_equal(self.sizes[-2], self.sizes[-1], "self must be square")
    return self.fresh()


@rule("aten.linalg_pinv.atol_rtol_tensor")
def pinv(
    self: TensorSpec,
    *,
    atol: TensorSpec | None = None,
    rtol: TensorSpec | None = None,
    hermitian: bool = False,
) -> TensorSpec:
    """The pseudo-inverse: ``(m, n) -> (n, m)``."""
    need_matrix("self", self)
    *batch, m, n = self.sizes
    if hermitian:
        need_equal(m, n, "hermitian matrices must be square")
    return in_rows(self, (*batch, n, m))


@rule("aten.linalg_cross.default")
def cross(self: TensorSpec, other: TensorSpec, *, dim: int = -1) -> TensorSpec:
    """The cross product along a dimension of size 3; the rest broadcasts. Contiguous."""
    if len(self.sizes) != len(other.sizes):
        raise ShapeError(f"dimensions of {show(self.sizes)} and {show(other.sizes)} differ")
    at = wrap_dim(dim, len(self.sizes))
    if not self.sizes:
        raise ShapeError("cross does not apply to 0-d tensors")
    for spec in (self, other):
        need_equal(spec.sizes[at], 3, f"dimension {at} must be of size 3")
    need_same("other", other, "self", self)
    if self.dtype is torch.bool:
        raise DtypeError("not implemented for bool")
    return self.fresh(broadcast(self.sizes, other.sizes))


@rule("aten._linalg_check_errors.default")
def check_errors(info: TensorSpec, api_name: str, *, is_matrix: bool) -> None:
    """Raises in eager if a code is not 0; has no result."""
    need_contiguous("info", info)
