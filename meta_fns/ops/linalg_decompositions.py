"""Decompositions of matrices: Cholesky, eigenvalues, singular values, QR, LU, LDL; products of
reflections.
"""

from __future__ import annotations

import torch

from meta_fns.core.checks import need_dtype, need_equal, need_same
from meta_fns.core.registry import rule
from meta_fns.core.sizes import check, known, show
from meta_fns.core.spec import TensorSpec
from meta_fns.core.type_promotion import to_complex, to_real
from meta_fns.errors import ShapeError
from meta_fns.ops.lapack import (
    Three,
    Two,
    by_columns,
    codes,
    in_columns,
    in_rows,
    need_matrix,
    need_square,
    nothing,
    smaller,
)

__all__: list[str] = []


@rule("aten.linalg_cholesky_ex.default")
def cholesky_ex(self: TensorSpec, *, upper: bool = False, check_errors: bool = False) -> Two:
    """The Cholesky factor, and a code for each matrix."""
    need_square("self", self)
    return in_columns(self), codes(self, self.sizes[:-2])


@rule("aten.cholesky.default")
def cholesky(self: TensorSpec, upper: bool = False) -> TensorSpec:
    """The Cholesky factor (contiguous if empty)."""
    for size in self.sizes:
        if not known(size >= 1) and size == 0:
            return self.fresh()
    need_square("self", self)
    return in_columns(self)


@rule("aten._linalg_eigh.default")
def eigh(A: TensorSpec, UPLO: str = "L", compute_v: bool = True) -> Two:
    """Real eigenvalues, and eigenvectors unless told not to."""
    need_square("A", A)
    if UPLO.upper() not in ("L", "U"):
        raise ShapeError(f"UPLO must be 'L' or 'U', got {UPLO!r}")
    return in_rows(A, A.sizes[:-1], to_real(A.dtype)), in_columns(A) if compute_v else nothing(A)


@rule("aten.linalg_eig.default")
def eig(self: TensorSpec) -> Two:
    """Complex eigenvalues and eigenvectors."""
    need_square("self", self)
    dtype = to_complex(self.dtype)
    vectors = (
        by_columns(self.sizes, dtype, self.device)
        if self.device.type == "cpu"
        else in_rows(self, self.sizes, dtype)
    )
    return in_rows(self, self.sizes[:-1], dtype), vectors


@rule("aten.linalg_eigvals.default", "aten._linalg_eigvals.default")
def eigvals(self: TensorSpec) -> TensorSpec:
    """Complex eigenvalues."""
    return eig(self)[0]


@rule("aten._linalg_svd.default")
def svd(
    A: TensorSpec,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> Three:
    """``(m, n) -> (m, k), (k,), (k, n)`` with ``k = min(m, n)``, or square factors."""
    need_matrix("A", A)
    if driver is not None and A.device.type == "cpu":
        raise ShapeError("driver is for CUDA tensors only")
    *batch, m, n = A.sizes
    k = smaller(m, n)
    values = in_rows(A, (*batch, k), to_real(A.dtype))
    if not compute_uv:
        return nothing(A), values, nothing(A)
    left = in_columns(A, (*batch, m, m if full_matrices else k))
    sizes = (*batch, n if full_matrices else k, n)
    right = in_columns(A, sizes) if A.device.type == "cpu" else in_rows(A, sizes)
    return left, values, right


@rule("aten.linalg_qr.default")
def qr(A: TensorSpec, mode: str = "reduced") -> Two:
    """``(m, n) -> (m, k), (k, n)`` with ``k = min(m, n)``, or ``k = m`` if complete; mode ``r``:
    not the first.
    """
    need_matrix("A", A)
    if mode not in ("reduced", "complete", "r"):
        raise ShapeError(f"mode must be 'reduced', 'complete' or 'r', got {mode!r}")
    *batch, m, n = A.sizes
    k = m if mode == "complete" else smaller(m, n)
    return nothing(A) if mode == "r" else in_columns(A, (*batch, m, k)), in_columns(
        A, (*batch, k, n)
    )


@rule("aten.geqrf.default")
def geqrf(self: TensorSpec) -> Two:
    """The raw factors of a QR decomposition."""
    need_matrix("self", self)
    return in_columns(self), in_rows(
        self, (*self.sizes[:-2], smaller(self.sizes[-2], self.sizes[-1]))
    )


@rule("aten.linalg_lu_factor_ex.default")
def lu_factor_ex(A: TensorSpec, *, pivot: bool = True, check_errors: bool = False) -> Three:
    """Compact LU factors, pivots, and a code for each matrix."""
    need_matrix("A", A)
    if not pivot and A.device.type == "cpu":
        raise ShapeError("LU without pivoting is not implemented on the CPU")
    *batch, m, n = A.sizes
    return in_columns(A), codes(A, (*batch, smaller(m, n))), codes(A, batch)


def _lu_parts(spec: TensorSpec, permutation: bool, factors: bool) -> Three:
    *batch, m, n = spec.sizes
    k = smaller(m, n)
    p = in_rows(spec, (*batch, m, m)) if permutation else nothing(spec)
    if not factors:
        return p, nothing(spec), nothing(spec)
    return p, in_rows(spec, (*batch, m, k)), in_rows(spec, (*batch, k, n))


@rule("aten.linalg_lu.default")
def lu(A: TensorSpec, *, pivot: bool = True) -> Three:
    """A permutation and the two triangular factors, contiguous."""
    need_matrix("A", A)
    if not pivot and A.device.type == "cpu":
        raise ShapeError("LU without pivoting is not implemented on the CPU")
    return _lu_parts(A, pivot, True)


@rule("aten.lu_unpack.default")
def lu_unpack(
    LU_data: TensorSpec, LU_pivots: TensorSpec, unpack_data: bool = True, unpack_pivots: bool = True
) -> Three:
    """The permutation and the triangular factors of a compact LU decomposition."""
    if len(LU_data.sizes) < 2:
        raise ShapeError(f"LU_data must have at least 2 dimensions, got {show(LU_data.sizes)}")
    if unpack_pivots:
        need_dtype("LU_pivots", LU_pivots, (torch.int32,))
    return _lu_parts(LU_data, unpack_pivots, unpack_data)


@rule("aten.linalg_ldl_factor_ex.default")
def ldl_factor_ex(
    self: TensorSpec, *, hermitian: bool = False, check_errors: bool = False
) -> Three:
    """Compact LDL factors, pivots, and a code for each matrix."""
    need_square("self", self)
    return in_columns(self), codes(self, self.sizes[:-1]), codes(self, self.sizes[:-2])


@rule("aten.linalg_householder_product.default")
def householder_product(input: TensorSpec, tau: TensorSpec) -> TensorSpec:
    """The product of Householder reflections: the sizes of the input."""
    need_matrix("input", input)
    m, n = input.sizes[-2:]
    check(m >= n, lambda: f"input {show(input.sizes)} must have at least as many rows as columns")
    if not tau.sizes or len(tau.sizes) != len(input.sizes) - 1:
        raise ShapeError(
            f"tau {show(tau.sizes)} must have one dimension less than input {show(input.sizes)}"
        )
    check(
        n >= tau.sizes[-1],
        lambda: f"tau {show(tau.sizes)} has more entries than input {show(input.sizes)} columns",
    )
    for a, b in zip(input.sizes[:-2], tau.sizes[:-1], strict=True):
        need_equal(a, b, "the batches of input and tau")
    need_same("tau", tau, "input", input)
    return in_columns(input)


@rule("aten.ormqr.default")
def ormqr(
    self: TensorSpec,
    input2: TensorSpec,
    input3: TensorSpec,
    left: bool = True,
    transpose: bool = False,
) -> TensorSpec:
    """A matrix times a product of Householder reflections: the sizes of ``input3``."""
    need_matrix("self", self)
    if len(input3.sizes) < 2:
        raise ShapeError(f"input3 must have at least 2 dimensions, got {show(input3.sizes)}")
    side = input3.sizes[-2 if left else -1]
    need_equal(
        input2.sizes[-1], smaller(side, self.sizes[-1]), f"tau {show(input2.sizes)} does not fit"
    )
    need_equal(side, self.sizes[-2], "reflections do not fit the matrix")
    if len(self.sizes) != len(input2.sizes) + 1 or len(self.sizes) != len(input3.sizes):
        raise ShapeError(
            f"dimensions of {show(self.sizes)}, {show(input2.sizes)}, {show(input3.sizes)} do not "
            "fit"
        )
    for a, b, c in zip(self.sizes[:-2], input2.sizes[:-1], input3.sizes[:-2], strict=True):
        need_equal(a, b, "the batches")
        need_equal(a, c, "the batches")
    need_same("input2", input2, "self", self)
    need_same("input3", input3, "self", self)
    return in_columns(input3)
