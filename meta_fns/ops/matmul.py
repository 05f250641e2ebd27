"""Matrix products."""

from __future__ import annotations

from typing import Any

import torch

from meta_fns.core.broadcasting import expand
from meta_fns.core.checks import refuse_unless_empty
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, check, same, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.padding import matmul as padded_matmul


def need_dim(name: str, spec: TensorSpec, dim: int) -> None:
    """Raise ShapeError if argument ``name`` has not exactly ``dim`` dimensions."""
    if len(spec.sizes) != dim:
        raise ShapeError(f"{name} must have {dim} dimensions, got {show(spec.sizes)}")


def need_same_dtype(a: TensorSpec, b: TensorSpec, names: str) -> None:
    """Raise DtypeError if the two specs differ in dtype or device (except 0-d CPU tensors)."""
    if a.dtype is not b.dtype:
        raise DtypeError(f"{names} must have one dtype, got {a.dtype} and {b.dtype}")
    if a.device is not b.device and a.device != b.device:
        raise DtypeError(f"{names} must be on one device, got {a.device} and {b.device}")


def need_product(dtype: torch.dtype, sizes: tuple[Size, ...]) -> None:
    """Raise DtypeError for bool matrices, unless there is nothing to multiply."""
    if dtype is torch.bool:
        refuse_unless_empty("matrix products are not implemented for bool", sizes)


def inner(a: Size, b: Size, left: TensorSpec, right: TensorSpec) -> None:
    """Require that the contracted sizes agree."""
    if a is not b and not same(a, b):
        check(a == b, lambda: f"contracted sizes differ: {show(left.sizes)} @ {show(right.sizes)}")


@rule("aten.mm.default", padding=padded_matmul.product)
def mm(self: TensorSpec, mat2: TensorSpec) -> TensorSpec:
    """``(n, k) @ (k, m) -> (n, m)``."""
    need_dim("self", self, 2)
    need_dim("mat2", mat2, 2)
    need_same_dtype(self, mat2, "self and mat2")
    n, k = self.sizes
    k2, m = mat2.sizes
    inner(k, k2, self, mat2)
    need_product(self.dtype, (n, k, m))
    return TensorSpec.contiguous((n, m), self.dtype, self.device)


@rule("aten.bmm.default", padding=padded_matmul.product)
def bmm(self: TensorSpec, mat2: TensorSpec) -> TensorSpec:
    """``(b, n, k) @ (b, k, m) -> (b, n, m)``."""
    need_dim("self", self, 3)
    need_dim("mat2", mat2, 3)
    b, n, k = self.sizes
    b2, k2, m = mat2.sizes
    # Eager looks at the dtypes no earlier than there is something to multiply.
    if self.dtype is not mat2.dtype:
        refuse_unless_empty(
            f"self and mat2 must have one dtype, got {self.dtype} and {mat2.dtype}", (b, n, k, m)
        )
    need_product(self.dtype, (b, n, k, m))
    if self.device != mat2.device:
        raise DtypeError(
            f"self and mat2 must be on one device, got {self.device} and {mat2.device}"
        )
    if b is not b2 and not same(b, b2):
        check(b == b2, lambda: f"batch sizes differ: {show(self.sizes)} @ {show(mat2.sizes)}")
    inner(k, k2, self, mat2)
    return TensorSpec.contiguous((b, n, m), mat2.dtype, self.device)


@rule("aten.addmm.default", padding=padded_matmul.added_product)
def addmm(
    self: TensorSpec, mat1: TensorSpec, mat2: TensorSpec, *, beta: Any = 1, alpha: Any = 1
) -> TensorSpec:
    """``(n, m) + (n, k) @ (k, m) -> (n, m)``, the first expanded to that."""
    need_dim("mat1", mat1, 2)
    need_dim("mat2", mat2, 2)
    need_same_dtype(mat1, mat2, "mat1 and mat2")
    need_same_dtype(self, mat1, "self and mat1")
    n, k = mat1.sizes
    k2, m = mat2.sizes
    inner(k, k2, mat1, mat2)
    need_product(mat1.dtype, (n, m))
    expand(self.sizes, self.strides, (n, m))
    return TensorSpec.contiguous((n, m), mat1.dtype, mat1.device)


__all__ = ["addmm", "bmm", "inner", "mm", "need_dim", "need_same_dtype"]
