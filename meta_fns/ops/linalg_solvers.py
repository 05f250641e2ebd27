"""Solutions of linear equations, from matrices or their factors, and least squares."""

from __future__ import annotations

import torch

from meta_fns.core.broadcasting import broadcast
from meta_fns.core.checks import need_dtype, need_equal, need_same, need_sizes
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Shape, known, same, show
from meta_fns.core.spec import TensorSpec
from meta_fns.core.type_promotion import to_real
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.lapack import (
    Four,
    Two,
    codes,
    in_columns,
    in_rows,
    need_matrix,
    need_square,
    nothing,
    smaller,
)

__all__: list[str] = []


def _batched(a: TensorSpec, b: TensorSpec) -> tuple[Shape, Shape]:
    """The sizes of both with their batches broadcast."""
    batch = broadcast(a.sizes[:-2], b.sizes[:-2])
    return (*batch, *a.sizes[-2:]), (*batch, *b.sizes[-2:])


def _solve_checks(a: TensorSpec, b_sizes: Shape, left: bool) -> None:
    need_square("A", a)
    side = b_sizes[-2 if left else -1]
    need_equal(a.sizes[-1], side, f"A {show(a.sizes)} does not fit B {show(b_sizes)}")


def _is_vectors(a: TensorSpec, b: TensorSpec) -> bool:
    """Return whether the right hand side is a batch of vectors."""
    if len(b.sizes) == 1:
        return True
    if len(a.sizes) - 1 != len(b.sizes):
        return False
    return all(same(x, y) or x == y for x, y in zip(b.sizes, a.sizes[:-1], strict=True))


@rule("aten._linalg_solve_ex.default")
def solve_ex(
    A: TensorSpec, B: TensorSpec, *, left: bool = True, check_errors: bool = False
) -> Four:
    """The solution of ``A X = B``; LU factors, pivots and a code for each matrix."""
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
    result = in_columns(B, sizes) if left else in_rows(B, sizes)
    return result, in_columns(A), codes(A, A.sizes[:-1]), codes(A, A.sizes[:-2])


@rule("aten.linalg_lu_solve.default")
def lu_solve(
    LU: TensorSpec, pivots: TensorSpec, B: TensorSpec, *, left: bool = True, adjoint: bool = False
) -> TensorSpec:
    """The solution of ``A X = B`` from the LU factors of A."""
    need_dtype("pivots", pivots, (torch.int32,))
    need_same("B", B, "LU", LU)
    if len(B.sizes) < 2:
        raise ShapeError(f"B must have at least 2 dimensions, got {show(B.sizes)}")
    _solve_checks(LU, B.sizes, left)
    need_sizes("pivots", pivots, LU.sizes[:-1])
    sizes = _batched(B, LU)[0]
    return in_columns(B, sizes) if left else in_rows(B, sizes)


@rule("aten.linalg_ldl_solve.default")
def ldl_solve(
    LD: TensorSpec, pivots: TensorSpec, B: TensorSpec, *, hermitian: bool = False
) -> TensorSpec:
    """The solution of ``A X = B`` from the LDL factors of A."""
    need_same("B", B, "LD", LD)
    if len(B.sizes) < 2:
        raise ShapeError(f"B must have at least 2 dimensions, got {show(B.sizes)}")
    _solve_checks(LD, B.sizes, True)
    need_sizes("pivots", pivots, LD.sizes[:-1])
    if pivots.dtype.is_floating_point or pivots.dtype.is_complex or pivots.dtype is torch.bool:
        raise DtypeError(f"pivots must be integers, got {pivots.dtype}")
    return in_columns(B, _batched(B, LD)[0])


@rule("aten.linalg_solve_triangular.default")
def solve_triangular(
    self: TensorSpec, B: TensorSpec, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> TensorSpec:
    """The solution of ``A X = B`` for triangular A."""
    need_same("B", B, "A", self)
    if len(B.sizes) < 2:
        raise ShapeError(f"B must have at least 2 dimensions, got {show(B.sizes)}")
    _solve_checks(self, B.sizes, left)
    sizes = _batched(B, self)[0]
    return in_columns(B, sizes)


@rule("aten.triangular_solve.default")
def triangular_solve(
    self: TensorSpec,
    A: TensorSpec,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Two:
    """The solution of ``A X = self`` for triangular A, and a copy of A; both with the batches
    broadcast.
    """
    if len(self.sizes) < 2:
        raise ShapeError(f"self must have at least 2 dimensions, got {show(self.sizes)}")
    need_same("self", self, "A", A)
    _solve_checks(A, self.sizes, True)
    mine, theirs = _batched(self, A)
    return in_columns(self, mine), in_columns(A, theirs)


@rule("aten.cholesky_solve.default")
def cholesky_solve(self: TensorSpec, input2: TensorSpec, upper: bool = False) -> TensorSpec:
    """The solution of ``A X = self`` from the Cholesky factor of A."""
    if len(self.sizes) < 2:
        raise ShapeError(f"self must have at least 2 dimensions, got {show(self.sizes)}")
    need_same("self", self, "input2", input2)
    _solve_checks(input2, self.sizes, True)
    return in_columns(self, _batched(self, input2)[0])


@rule("aten.linalg_lstsq.default")
def lstsq(
    self: TensorSpec, b: TensorSpec, rcond: float | None = None, *, driver: str | None = None
) -> Four:
    """Least squares: the solution; residuals, rank and singular values as the driver computes them.

    Residuals are there for ``m > n`` unless the driver is gelsy; that they are dropped where a
    matrix lacks full rank depends on data and is not known here.
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
    solution = in_columns(b, (*batch, rows, wide[-1]))
    solution = solution.view((*batch, n, wide[-1]), solution.strides)
    tall = driver != "gelsy" and m > n
    real = to_real(self.dtype)
    residuals = (
        in_rows(b, batch if vectors else (*batch, wide[-1]), real) if tall else nothing(self, real)
    )
    if vectors:
        solution = solution.view((*batch, n), solution.strides[:-1])
    rank = nothing(self, torch.int64) if driver == "gels" else in_rows(self, batch, torch.int64)
    wants = driver in ("gelsd", "gelss")
    values = in_rows(self, (*batch, smaller(m, n)), real) if wants else nothing(self, real)
    return solution, residuals, rank, values
