"""Linear algebra: decompositions, solvers, products beyond `mm`. LAPACK results lie in memory by columns."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import layout
from meta_fns.core.broadcasting import broadcast
from meta_fns.core.checks import (
    COMPLEX,
    DOUBLES,
    has_zero,
    need_contiguous,
    need_dtype,
    need_equal,
    need_same,
    need_sizes,
)
from meta_fns.core.dims import wrap_dim
from meta_fns.core.promote import to_complex, to_real
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Shape, Size, at_least_one, check, known, same, show, sym_min
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, ShapeError

__all__ = ["by_columns"]

_LAPACK = DOUBLES | COMPLEX
_HALVES = (torch.float16, torch.bfloat16)


def by_columns(sizes: Sequence[Size], dtype: torch.dtype, device: torch.device) -> TensorSpec:
    """Fresh matrices that lie in memory column by column (fewer than two dimensions: contiguous)."""
    sizes = tuple(sizes)
    if len(sizes) < 2:
        return TensorSpec.contiguous(sizes, dtype, device)
    strides = (*layout.contiguous_strides(sizes)[:-2], 1, at_least_one(sizes[-2]))
    return TensorSpec(sizes, strides, 0, dtype, device)


def _columns(spec: TensorSpec, sizes: Sequence[Size] | None = None) -> TensorSpec:
    return by_columns(spec.sizes if sizes is None else sizes, spec.dtype, spec.device)


def _rows(spec: TensorSpec, sizes: Sequence[Size], dtype: torch.dtype | None = None) -> TensorSpec:
    return TensorSpec.contiguous(sizes, dtype or spec.dtype, spec.device)


def _int32(spec: TensorSpec, sizes: Sequence[Size]) -> TensorSpec:
    return TensorSpec.contiguous(sizes, torch.int32, spec.device)


def _none(spec: TensorSpec, dtype: torch.dtype | None = None) -> TensorSpec:
    return TensorSpec.contiguous((0,), dtype or spec.dtype, spec.device)


def need_matrix(name: str, spec: TensorSpec) -> None:
    """Require matrices (in batches or not) of a dtype that LAPACK knows."""
    if len(spec.sizes) < 2:
        raise ShapeError(f"{name} must have at least 2 dimensions, got {show(spec.sizes)}")
    if not (spec.dtype in _HALVES and has_zero(spec.sizes)):
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


Two = tuple[TensorSpec, TensorSpec]
Three = tuple[TensorSpec, TensorSpec, TensorSpec]
Four = tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec]


# --- decompositions --------------------------------------------------------------------------------------------------


@rule("aten.linalg_cholesky_ex.default")
def cholesky_ex(self: TensorSpec, *, upper: bool = False, check_errors: bool = False) -> Two:
    """The Cholesky factor, and a code for each matrix."""
    need_square("self", self)
    return _columns(self), _int32(self, self.sizes[:-2])


@rule("aten.cholesky.default")
def cholesky(self: TensorSpec, upper: bool = False) -> TensorSpec:
    """The Cholesky factor (contiguous if empty)."""
    for size in self.sizes:
        if not known(size >= 1) and size == 0:
            return self.fresh()
    need_square("self", self)
    return _columns(self)


@rule("aten.cholesky_inverse.default")
def cholesky_inverse(self: TensorSpec, upper: bool = False) -> TensorSpec:
    """The inverse from a Cholesky factor."""
    need_square("self", self)
    return _columns(self)


@rule("aten.linalg_inv_ex.default")
def inv_ex(A: TensorSpec, *, check_errors: bool = False) -> Two:
    """The inverse, and a code for each matrix."""
    need_square("A", A)
    return _columns(A), _int32(A, A.sizes[:-2])


@rule("aten._linalg_det.default")
def det(A: TensorSpec) -> Three:
    """Determinants, and the LU factors they were read off."""
    need_square("A", A)
    return _rows(A, A.sizes[:-2]), _columns(A), _int32(A, A.sizes[:-1])


@rule("aten._linalg_slogdet.default")
def slogdet(A: TensorSpec) -> Four:
    """Signs and logarithms of determinants, and the LU factors they were read off."""
    need_square("A", A)
    batch = A.sizes[:-2]
    return _rows(A, batch), _rows(A, batch, to_real(A.dtype)), _columns(A), _int32(A, A.sizes[:-1])


@rule("aten._linalg_eigh.default")
def eigh(A: TensorSpec, UPLO: str = "L", compute_v: bool = True) -> Two:
    """Real eigenvalues, and eigenvectors unless told not to."""
    need_square("A", A)
    if UPLO.upper() not in ("L", "U"):
        raise ShapeError(f"UPLO must be 'L' or 'U', got {UPLO!r}")
    return _rows(A, A.sizes[:-1], to_real(A.dtype)), _columns(A) if compute_v else _none(A)


@rule("aten.linalg_eig.default")
def eig(self: TensorSpec) -> Two:
    """Complex eigenvalues and eigenvectors."""
    need_square("self", self)
    dtype = to_complex(self.dtype)
    vectors = (
        by_columns(self.sizes, dtype, self.device) if self.device.type == "cpu" else _rows(self, self.sizes, dtype)
    )
    return _rows(self, self.sizes[:-1], dtype), vectors


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
    """`(m, n) -> (m, k), (k,), (k, n)` with `k = min(m, n)`, or square factors."""
    need_matrix("A", A)
    if driver is not None and A.device.type == "cpu":
        raise ShapeError("driver is for CUDA tensors only")
    *batch, m, n = A.sizes
    k = smaller(m, n)
    values = _rows(A, (*batch, k), to_real(A.dtype))
    if not compute_uv:
        return _none(A), values, _none(A)
    left = _columns(A, (*batch, m, m if full_matrices else k))
    sizes = (*batch, n if full_matrices else k, n)
    right = _columns(A, sizes) if A.device.type == "cpu" else _rows(A, sizes)
    return left, values, right


@rule("aten.linalg_qr.default")
def qr(A: TensorSpec, mode: str = "reduced") -> Two:
    """`(m, n) -> (m, k), (k, n)` with `k = min(m, n)`, or `k = m` if complete; mode `r` leaves out the first."""
    need_matrix("A", A)
    if mode not in ("reduced", "complete", "r"):
        raise ShapeError(f"mode must be 'reduced', 'complete' or 'r', got {mode!r}")
    *batch, m, n = A.sizes
    k = m if mode == "complete" else smaller(m, n)
    return _none(A) if mode == "r" else _columns(A, (*batch, m, k)), _columns(A, (*batch, k, n))


@rule("aten.geqrf.default")
def geqrf(self: TensorSpec) -> Two:
    """The raw factors of a QR decomposition."""
    need_matrix("self", self)
    return _columns(self), _rows(self, (*self.sizes[:-2], smaller(self.sizes[-2], self.sizes[-1])))


@rule("aten.linalg_lu_factor_ex.default")
def lu_factor_ex(A: TensorSpec, *, pivot: bool = True, check_errors: bool = False) -> Three:
    """Compact LU factors, pivots, and a code for each matrix."""
    need_matrix("A", A)
    if not pivot and A.device.type == "cpu":
        raise ShapeError("LU without pivoting is not implemented on the CPU")
    *batch, m, n = A.sizes
    return _columns(A), _int32(A, (*batch, smaller(m, n))), _int32(A, batch)


def _lu_parts(spec: TensorSpec, permutation: bool, factors: bool) -> Three:
    *batch, m, n = spec.sizes
    k = smaller(m, n)
    p = _rows(spec, (*batch, m, m)) if permutation else _none(spec)
    if not factors:
        return p, _none(spec), _none(spec)
    return p, _rows(spec, (*batch, m, k)), _rows(spec, (*batch, k, n))


@rule("aten.linalg_lu.default")
def lu(A: TensorSpec, *, pivot: bool = True) -> Three:
    """A permutation and the two triangular factors, contiguous."""
    need_matrix("A", A)
    if not pivot and A.device.type == "cpu":
        raise ShapeError("LU without pivoting is not implemented on the CPU")
    return _lu_parts(A, pivot, True)


@rule("aten.lu_unpack.default")
def lu_unpack(
    LU_data: TensorSpec,
    LU_pivots: TensorSpec,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> Three:
    """The permutation and the triangular factors of a compact LU decomposition."""
    if len(LU_data.sizes) < 2:
        raise ShapeError(f"LU_data must have at least 2 dimensions, got {show(LU_data.sizes)}")
    if unpack_pivots:
        need_dtype("LU_pivots", LU_pivots, (torch.int32,))
    return _lu_parts(LU_data, unpack_pivots, unpack_data)


@rule("aten.linalg_ldl_factor_ex.default")
def ldl_factor_ex(self: TensorSpec, *, hermitian: bool = False, check_errors: bool = False) -> Three:
    """Compact LDL factors, pivots, and a code for each matrix."""
    need_square("self", self)
    return _columns(self), _int32(self, self.sizes[:-1]), _int32(self, self.sizes[:-2])


@rule("aten.linalg_householder_product.default")
def householder_product(input: TensorSpec, tau: TensorSpec) -> TensorSpec:  # noqa: A002 - name of the schema
    """The product of Householder reflections: the sizes of the input."""
    need_matrix("input", input)
    m, n = input.sizes[-2:]
    check(m >= n, lambda: f"input {show(input.sizes)} must have at least as many rows as columns")
    if not tau.sizes or len(tau.sizes) != len(input.sizes) - 1:
        raise ShapeError(f"tau {show(tau.sizes)} must have one dimension less than input {show(input.sizes)}")
    check(n >= tau.sizes[-1], lambda: f"tau {show(tau.sizes)} has more entries than input {show(input.sizes)} columns")
    for a, b in zip(input.sizes[:-2], tau.sizes[:-1], strict=True):
        need_equal(a, b, "the batches of input and tau")
    need_same("tau", tau, "input", input)
    return _columns(input)


@rule("aten.ormqr.default")
def ormqr(
    self: TensorSpec, input2: TensorSpec, input3: TensorSpec, left: bool = True, transpose: bool = False
) -> TensorSpec:
    """A matrix times a product of Householder reflections: the sizes of `input3`."""
    need_matrix("self", self)
    if len(input3.sizes) < 2:
        raise ShapeError(f"input3 must have at least 2 dimensions, got {show(input3.sizes)}")
    side = input3.sizes[-2 if left else -1]
    need_equal(input2.sizes[-1], smaller(side, self.sizes[-1]), f"tau {show(input2.sizes)} does not fit")
    need_equal(side, self.sizes[-2], "reflections do not fit the matrix")
    if len(self.sizes) != len(input2.sizes) + 1 or len(self.sizes) != len(input3.sizes):
        raise ShapeError(f"dimensions of {show(self.sizes)}, {show(input2.sizes)}, {show(input3.sizes)} do not fit")
    for a, b, c in zip(self.sizes[:-2], input2.sizes[:-1], input3.sizes[:-2], strict=True):
        need_equal(a, b, "the batches")
        need_equal(a, c, "the batches")
    need_same("input2", input2, "self", self)
    need_same("input3", input3, "self", self)
    return _columns(input3)


# --- solvers ---------------------------------------------------------------------------------------------------------


def _batched(a: TensorSpec, b: TensorSpec) -> tuple[Shape, Shape]:
    """The sizes of both with their batches broadcast."""
    batch = broadcast(a.sizes[:-2], b.sizes[:-2])
    return (*batch, *a.sizes[-2:]), (*batch, *b.sizes[-2:])


def _solve_checks(a: TensorSpec, b_sizes: Shape, left: bool) -> None:
    need_square("A", a)
    side = b_sizes[-2 if left else -1]
    need_equal(a.sizes[-1], side, f"A {show(a.sizes)} does not fit B {show(b_sizes)}")


def _is_vectors(a: TensorSpec, b: TensorSpec) -> bool:
    """Whether the right hand side is a batch of vectors."""
    if len(b.sizes) == 1:
        return True
    if len(a.sizes) - 1 != len(b.sizes):
        return False
    return all(same(x, y) or x == y for x, y in zip(b.sizes, a.sizes[:-1], strict=True))


@rule("aten._linalg_solve_ex.default")
def solve_ex(
    A: TensorSpec,
    B: TensorSpec,
    *,
    left: bool = True,
    check_errors: bool = False,
) -> Four:
    """The solution of `A X = B`; LU factors, pivots and a code for each matrix."""
    need_same("B", B, "A", A)
    need_matrix("A", A)
    vectors = _is_vectors(A, B)
    if vectors and not left:
        raise ShapeError("left=False needs matrices on the right hand side")
    if not vectors and len(B.sizes) < 2:
        raise ShapeError(f"B must have at least 2 dimensions, got {show(B.sizes)}")
    wide = B.view((*B.sizes, 1), (*B.strides, 1)) if vectors else B
    _solve_checks(A, wide.sizes, left)
    sizes = _batched(wide, A)[0]
    sizes = sizes[:-1] if vectors else sizes
    result = _columns(B, sizes) if left else _rows(B, sizes)
    return result, _columns(A), _int32(A, A.sizes[:-1]), _int32(A, A.sizes[:-2])


@rule("aten.linalg_lu_solve.default")
def lu_solve(
    LU: TensorSpec,
    pivots: TensorSpec,
    B: TensorSpec,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> TensorSpec:
    """The solution of `A X = B` from the LU factors of A."""
    need_dtype("pivots", pivots, (torch.int32,))
    need_same("B", B, "LU", LU)
    if len(B.sizes) < 2:
        raise ShapeError(f"B must have at least 2 dimensions, got {show(B.sizes)}")
    _solve_checks(LU, B.sizes, left)
    need_sizes("pivots", pivots, LU.sizes[:-1])
    sizes = _batched(B, LU)[0]
    return _columns(B, sizes) if left else _rows(B, sizes)


@rule("aten.linalg_ldl_solve.default")
def ldl_solve(LD: TensorSpec, pivots: TensorSpec, B: TensorSpec, *, hermitian: bool = False) -> TensorSpec:
    """The solution of `A X = B` from the LDL factors of A."""
    need_same("B", B, "LD", LD)
    if len(B.sizes) < 2:
        raise ShapeError(f"B must have at least 2 dimensions, got {show(B.sizes)}")
    _solve_checks(LD, B.sizes, True)
    need_sizes("pivots", pivots, LD.sizes[:-1])
    if pivots.dtype.is_floating_point or pivots.dtype.is_complex or pivots.dtype is torch.bool:
        raise DtypeError(f"pivots must be integers, got {pivots.dtype}")
    return _columns(B, _batched(B, LD)[0])


@rule("aten.linalg_solve_triangular.default")
def solve_triangular(
    self: TensorSpec,
    B: TensorSpec,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> TensorSpec:
    """The solution of `A X = B` for triangular A."""
    need_same("B", B, "A", self)
    if len(B.sizes) < 2:
        raise ShapeError(f"B must have at least 2 dimensions, got {show(B.sizes)}")
    _solve_checks(self, B.sizes, left)
    sizes = _batched(B, self)[0]
    return _columns(B, sizes)


@rule("aten.triangular_solve.default")
def triangular_solve(
    self: TensorSpec,
    A: TensorSpec,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Two:
    """The solution of `A X = self` for triangular A, and a copy of A; both with the batches broadcast."""
    if len(self.sizes) < 2:
        raise ShapeError(f"self must have at least 2 dimensions, got {show(self.sizes)}")
    need_same("self", self, "A", A)
    _solve_checks(A, self.sizes, True)
    mine, theirs = _batched(self, A)
    return _columns(self, mine), _columns(A, theirs)


@rule("aten.cholesky_solve.default")
def cholesky_solve(self: TensorSpec, input2: TensorSpec, upper: bool = False) -> TensorSpec:
    """The solution of `A X = self` from the Cholesky factor of A."""
    if len(self.sizes) < 2:
        raise ShapeError(f"self must have at least 2 dimensions, got {show(self.sizes)}")
    need_same("self", self, "input2", input2)
    _solve_checks(input2, self.sizes, True)
    return _columns(self, _batched(self, input2)[0])


@rule("aten.linalg_lstsq.default")
def lstsq(self: TensorSpec, b: TensorSpec, rcond: float | None = None, *, driver: str | None = None) -> Four:
    """Least squares: the solution; residuals, rank and singular values as the driver computes them.

    Residuals are there for `m > n` unless the driver is gelsy; that they are dropped where a matrix lacks full rank
    depends on data and is not known here.
    """
    need_same("b", b, "self", self)
    need_matrix("self", self)
    if not b.sizes:
        raise ShapeError("b must have at least 1 dimension")
    on_cpu = self.device.type == "cpu"
    driver = driver or ("gelsy" if on_cpu else "gels")
    if driver not in (("gels", "gelsy", "gelsd", "gelss") if on_cpu else ("gels",)):
        raise ShapeError(f"unknown driver {driver!r}")
    vectors = _is_vectors(self, b)
    if len(self.sizes) - len(b.sizes) > 1 or len(self.sizes) < len(b.sizes):
        raise ShapeError(f"self {show(self.sizes)} and b {show(b.sizes)} do not fit")
    wide = (*b.sizes, 1) if vectors else b.sizes
    *_, m, n = self.sizes
    need_equal(m, wide[-2], f"self {show(self.sizes)} does not fit b {show(b.sizes)}")
    batch = broadcast(self.sizes[:-2], tuple(wide[:-2]))
    rows = m if known(m >= n) else n if known(n >= m) else (m if m >= n else n)
    solution = _columns(b, (*batch, rows, wide[-1]))
    solution = solution.view((*batch, n, wide[-1]), solution.strides)
    tall = driver != "gelsy" and m > n
    real = to_real(self.dtype)
    residuals = _rows(b, batch if vectors else (*batch, wide[-1]), real) if tall else _none(self, real)
    if vectors:
        solution = solution.view((*batch, n), solution.strides[:-1])
    rank = _none(self, torch.int64) if driver == "gels" else _rows(self, batch, torch.int64)
    wants = driver in ("gelsd", "gelss")
    values = _rows(self, (*batch, smaller(m, n)), real) if wants else _none(self, real)
    return solution, residuals, rank, values


# --- functions of matrices -------------------------------------------------------------------------------------------


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
    self: TensorSpec, *, atol: TensorSpec | None = None, rtol: TensorSpec | None = None, hermitian: bool = False
) -> TensorSpec:
    """The pseudo-inverse: `(m, n) -> (n, m)`."""
    need_matrix("self", self)
    *batch, m, n = self.sizes
    if hermitian:
        need_equal(m, n, "hermitian matrices must be square")
    return _rows(self, (*batch, n, m))


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
