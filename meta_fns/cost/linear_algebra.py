"""Factorisations and solvers, by the leading terms of LAPACK's operation counts; distances; Fourier
transforms.
"""

from __future__ import annotations

from collections.abc import Callable

from meta_fns.core.cost_rule import CostRule, Formula, OpCall
from meta_fns.core.sizes import Size, product
from meta_fns.cost.charging import charge_all


def _of_matrix(count: Callable[[Size, Size], Size]) -> Formula:
    """``count(rows, columns)`` for each matrix of the batch in the first argument."""

    def flops(call: OpCall) -> Size:
        sizes = call.args[0].sizes
        return product(sizes[:-2]) * count(sizes[-2], sizes[-1])

    return flops


def _solved(count: Callable[[Size, Size], Size], matrix: int, right: int) -> Formula:
    """``count(n, columns)`` for each system: an ``(n, n)`` matrix and ``columns`` right-hand
    sides.
    """

    def flops(call: OpCall) -> Size:
        sides, system = call.args[right].sizes, call.args[matrix].sizes
        columns = sides[-1] if len(sides) >= len(system) else 1
        return product(system[:-2]) * count(system[-1], columns)

    return flops


def _cubic(numerator: int, denominator: int = 1) -> Callable[[Size, Size], Size]:
    return lambda rows, columns: rows * columns * columns * numerator // denominator


_MATRICES: tuple[tuple[int, int, str], ...] = (
    (1, 3, "linalg_cholesky_ex cholesky linalg_ldl_factor_ex"),
    (2, 3, "linalg_lu linalg_lu_factor_ex _linalg_det _linalg_slogdet"),
    (2, 1, "linalg_inv_ex cholesky_inverse linalg_qr geqrf linalg_householder_product"),
    (9, 1, "_linalg_eigh"),
    (14, 1, "_linalg_svd linalg_pinv"),
    (25, 1, "linalg_eig linalg_eigvals _linalg_eigvals"),
    (30, 1, "linalg_matrix_exp"),
)
for _numerator, _denominator, _names in _MATRICES:
    charge_all(CostRule("linear algebra", _of_matrix(_cubic(_numerator, _denominator))), _names)

charge_all(
    CostRule("linear algebra", _solved(lambda n, k: n * n * n * 2 // 3 + n * n * k * 2, 0, 1)),
    "_linalg_solve_ex",
)
charge_all(CostRule("linear algebra", _solved(lambda n, k: n * n * k, 1, 0)), "triangular_solve")
charge_all(
    CostRule("linear algebra", _solved(lambda n, k: n * n * k, 0, 1)), "linalg_solve_triangular"
)
charge_all(CostRule("linear algebra", _solved(lambda n, k: n * n * k * 2, 1, 0)), "cholesky_solve")
charge_all(
    CostRule("linear algebra", _solved(lambda n, k: n * n * k * 2, 0, 2)),
    "linalg_ldl_solve linalg_lu_solve",
)
charge_all(
    CostRule("linear algebra", lambda call: product(call.results[0].sizes) * 5), "linalg_cross"
)


def _pairs(count: int) -> Formula:
    """Every row of one set with every row of the other: so many operations a coordinate of a
    pair.
    """

    def flops(call: OpCall) -> Size:
        return product(call.results[0].sizes) * call.args[0].sizes[-1] * count

    return flops


charge_all(CostRule("contraction", _pairs(3)), "cdist _cdist_forward _pdist_forward")
charge_all(CostRule("contraction", _pairs(2)), "_euclidean_dist")


def _transformed(call: OpCall) -> Size | None:
    """``5 n log2(n)`` an axis, with the logarithm rounded up; unknown where the length of an axis
    is symbolic.
    """
    result = call.results[0]
    sizes = call.args[0].sizes if result.dtype.is_complex else result.sizes
    lengths = [sizes[dim] for dim in call.args[1]]
    if not all(type(length) is int for length in lengths):
        return None
    return product(sizes) * sum((length - 1).bit_length() for length in lengths) * 5


charge_all(CostRule("transform", _transformed), "_fft_c2c _fft_r2c _fft_c2r")
