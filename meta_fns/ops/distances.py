"""Distances between tensors, between the rows of two matrices, and among the rows of one."""

from __future__ import annotations

from typing import Any

from meta_fns.core.broadcasting import broadcast
from meta_fns.core.checks import (
    DOUBLES,
    has_zero,
    need_contiguous,
    need_dtype,
    need_equal,
    need_numbers,
    need_rank,
    need_same,
)
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Shape, Size, known, same_shape, show
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import laid_out_like
from meta_fns.core.type_promotion import is_float, result_type, to_real
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.padding import rows

__all__: list[str] = []


@rule("aten.dist.default")
def dist(self: TensorSpec, other: TensorSpec, p: Any = 2) -> TensorSpec:
    """The norm of the difference, which broadcasts."""
    broadcast(self.sizes, other.sizes)
    need_numbers(self)
    need_numbers(other)
    common = result_type((self, other))
    if not is_float(common):
        raise DtypeError(f"not implemented for {common}")
    return TensorSpec.contiguous((), to_real(common), self.device)


def _pairs(x1: TensorSpec, x2: TensorSpec) -> Shape:
    """``(*b, n, d), (*b, m, d) -> (*b, n, m)``."""
    for name, spec in (("x1", x1), ("x2", x2)):
        if len(spec.sizes) < 2:
            raise ShapeError(f"{name} must have at least 2 dimensions, got {show(spec.sizes)}")
    need_equal(x1.sizes[-1], x2.sizes[-1], "the last dimensions of x1 and x2")
    batch = broadcast(x1.sizes[:-2], x2.sizes[:-2])
    return (*batch, x1.sizes[-2], x2.sizes[-2])


@rule("aten._cdist_forward.default", padding=rows.distances)
def cdist_forward(x1: TensorSpec, x2: TensorSpec, p: float, compute_mode: int | None) -> TensorSpec:
    """The distance of each row of ``x1`` to each of ``x2``."""
    need_dtype("x1", x1, DOUBLES)
    need_dtype("x2", x2, DOUBLES)
    if not p >= 0:  # NaN, too
        raise ShapeError(f"p must not be negative, got {p}")
    if compute_mode is not None and not 0 <= compute_mode <= 2:
        raise ShapeError(f"compute_mode must be 0, 1 or 2, got {compute_mode}")
    return x1.fresh(_pairs(x1, x2))


@rule("aten.cdist.default")
def cdist(
    x1: TensorSpec, x2: TensorSpec, p: float = 2, compute_mode: int | None = None
) -> TensorSpec:
    """The same as one op, which finds out itself by which kernel."""
    return cdist_forward(x1, x2, p, compute_mode)


@rule("aten._cdist_backward.default")
def cdist_backward(
    grad: TensorSpec, x1: TensorSpec, x2: TensorSpec, p: float, cdist: TensorSpec
) -> TensorSpec:
    """The gradient of ``x1`` with the batches broadcast."""
    need_dtype("x1", x1, DOUBLES)
    need_dtype("grad", grad, DOUBLES)
    sizes = (*broadcast(x1.sizes[:-2], x2.sizes[:-2]), *x1.sizes[-2:])
    if not same_shape(sizes, x1.sizes):
        for size in (*sizes, x2.sizes[-2]):
            if not known(size >= 1) and size == 0:
                # Eager gives zeros like x1 as it is.
                return laid_out_like(x1)
    return laid_out_like(x1) if has_zero(sizes) else x1.fresh(sizes)


@rule("aten._euclidean_dist.default")
def euclidean_dist(x1: TensorSpec, x2: TensorSpec) -> TensorSpec:
    """The Euclidean distance of each row of ``x1`` to each of ``x2``."""
    return x1.fresh(_pairs(x1, x2))


@rule("aten._pdist_forward.default")
def pdist_forward(self: TensorSpec, p: float = 2.0) -> TensorSpec:
    """The distance of each pair of rows: ``(n, d) -> (n (n - 1) / 2,)``."""
    need_rank("self", self, 2)
    need_dtype("self", self, DOUBLES)
    if not p >= 0:  # NaN, too
        raise ShapeError(f"p must not be negative, got {p}")
    need_contiguous("self", self)
    n: Size = self.sizes[0]
    if not known(n >= 1) and n == 0:
        return self.fresh((0,))
    return self.fresh((n * (n - 1) // 2,))


@rule("aten._pdist_backward.default")
def pdist_backward(grad: TensorSpec, self: TensorSpec, p: float, pdist: TensorSpec) -> TensorSpec:
    """The gradient of pdist."""
    need_dtype("self", self, DOUBLES)
    need_contiguous("self", self)
    need_contiguous("pdist", pdist)
    need_same("grad", grad, "self", self)
    return self.fresh()
