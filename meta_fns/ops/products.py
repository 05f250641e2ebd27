"""Products of vectors and matrices beyond ``mm``: with vectors, in batches, fused, in integers or
8-bit floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.broadcasting import expand
from meta_fns.core.checks import (
    fit_into,
    has_zero,
    need_dtype,
    need_equal,
    need_numbers,
    need_rank,
    need_same,
)
from meta_fns.core.derived_rules import need_writable
from meta_fns.core.dims import wrap_dims
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Shape, Size, known, same, same_shape, show
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import iterate
from meta_fns.core.type_promotion import is_float, result_type, sum_dtype
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.matmul import addmm, need_same_dtype
from meta_fns.padding import matmul as padded_matmul
from meta_fns.padding.rearranging import trace as padded_trace

__all__: list[str] = []


def _scalar(spec: TensorSpec, dtype: torch.dtype | None = None) -> TensorSpec:
    return TensorSpec((), (), 0, dtype or spec.dtype, spec.device, torch.strided, True)


@rule("aten.mv.default", padding=padded_matmul.product)
def mv(self: TensorSpec, vec: TensorSpec) -> TensorSpec:
    """``(n, k) @ (k,) -> (n,)``."""
    need_numbers(self)
    need_rank("self", self, 2)
    need_rank("vec", vec, 1)
    need_same_dtype(self, vec, "self and vec")
    need_equal(self.sizes[1], vec.sizes[0], f"{show(self.sizes)} @ {show(vec.sizes)}")
    return TensorSpec.contiguous(self.sizes[:1], self.dtype, self.device)


@rule("aten.addmv.default", padding=padded_matmul.added_product)
def addmv(
    self: TensorSpec, mat: TensorSpec, vec: TensorSpec, *, beta: Any = 1, alpha: Any = 1
) -> TensorSpec:
    """``(n,) + (n, k) @ (k,) -> (n,)``."""
    result = mv(mat, vec)
    if len(self.sizes) > 1:
        raise ShapeError(f"self must be a vector, got {show(self.sizes)}")
    fit_into("self", self.sizes, result.sizes)
    need_same_dtype(self, mat, "self and mat")
    if beta != 0 and not same_shape(self.sizes, result.sizes):
        for size in mat.sizes:
            if not known(size >= 1) and size == 0:
                # Eager scales self then, as it is.
                return self.fresh()
    return result


@rule("aten.addr.default")
def addr(
    self: TensorSpec, vec1: TensorSpec, vec2: TensorSpec, *, beta: Any = 1, alpha: Any = 1
) -> TensorSpec:
    """``(n, m) + (n,) x (m,) -> (n, m)``."""
    need_rank("vec1", vec1, 1)
    need_rank("vec2", vec2, 1)
    sizes = (vec1.sizes[0], vec2.sizes[0])
    fit_into("self", self.sizes, sizes)
    common = result_type((self, vec1, vec2))
    for name, factor in (("beta", beta), ("alpha", alpha)):
        if isinstance(factor, bool) and common is not torch.bool:
            raise DtypeError(f"a bool {name} needs bool arguments")
        if isinstance(factor, float) and not is_float(common):
            raise DtypeError(f"for {common} arguments {name} must not be a float")
    expanded = self.view(*expand(self.sizes, self.strides, sizes))
    left = vec1.view((vec1.sizes[0], 1), (vec1.strides[0], 1))
    return iterate((expanded, left, vec2), common, common)


@rule("aten.addbmm.default")
def addbmm(
    self: TensorSpec, batch1: TensorSpec, batch2: TensorSpec, *, beta: Any = 1, alpha: Any = 1
) -> TensorSpec:
    """``(n, m) + sum of (b, n, k) @ (b, k, m) -> (n, m)``."""
    sizes = _batches(self, batch1, batch2)[1:]
    fit_into("self", self.sizes, sizes)
    if has_zero(batch1.sizes) and isinstance(beta, float) and not is_float(self.dtype):
        raise DtypeError(f"for {self.dtype} arguments beta must not be a float")
    return self.fresh(sizes)


@rule("aten.addbmm_.default")
def addbmm_(
    self: TensorSpec, batch1: TensorSpec, batch2: TensorSpec, *, beta: Any = 1, alpha: Any = 1
) -> TensorSpec:
    """``addbmm`` into self, which is resized to the result."""
    result = addbmm(self, batch1, batch2, beta=beta, alpha=alpha)
    if len(self.sizes) == 2 and all(
        same(a, b) or a == b for a, b in zip(self.sizes, result.sizes, strict=True)
    ):
        need_writable(self)
        return self
    return result.with_(storage_offset=self.storage_offset)


@rule("aten.baddbmm.default", padding=padded_matmul.added_product)
def baddbmm(
    self: TensorSpec, batch1: TensorSpec, batch2: TensorSpec, *, beta: Any = 1, alpha: Any = 1
) -> TensorSpec:
    """``(b, n, m) + (b, n, k) @ (b, k, m) -> (b, n, m)``."""
    sizes = _batches(self, batch1, batch2)
    fit_into("self", self.sizes, sizes)
    return TensorSpec.contiguous(sizes, self.dtype, self.device)


def _batches(self: TensorSpec, batch1: TensorSpec, batch2: TensorSpec) -> Shape:
    need_numbers(batch1)
    need_rank("batch1", batch1, 3)
    need_rank("batch2", batch2, 3)
    need_same_dtype(batch1, batch2, "batch1 and batch2")
    need_same_dtype(self, batch1, "self and batch1")
    need_equal(batch1.sizes[0], batch2.sizes[0], "the batches of batch1 and batch2")
    need_equal(batch1.sizes[2], batch2.sizes[1], f"{show(batch1.sizes)} @ {show(batch2.sizes)}")
    return (*batch1.sizes[:2], batch2.sizes[2])


@rule("aten.dot.default", "aten.vdot.default", padding=padded_matmul.dot)
def dot(self: TensorSpec, tensor: TensorSpec) -> TensorSpec:
    """``(n,) . (n,) -> ()``."""
    need_rank("self", self, 1)
    need_rank("tensor", tensor, 1)
    need_same("tensor", tensor, "self", self)
    if self.dtype is torch.bool:
        raise DtypeError("not implemented for bool")
    need_equal(self.sizes[0], tensor.sizes[0], "self and tensor")
    return _scalar(self)


@rule("aten.trace.default", padding=padded_trace)
def trace(self: TensorSpec) -> TensorSpec:
    """The sum of the diagonal of a matrix."""
    need_rank("self", self, 2)
    return _scalar(self, sum_dtype(self.dtype))


@rule("aten._trilinear.default")
def trilinear(
    i1: TensorSpec,
    i2: TensorSpec,
    i3: TensorSpec,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> TensorSpec:
    """The product of three tensors, each with dimensions of size 1 added, summed over
    ``sumdim``.
    """
    total = len(i1.sizes) + len(expand1)
    if not 0 <= unroll_dim < total:
        raise ShapeError(f"unroll_dim {unroll_dim} is out of range for {total} dimensions")
    gone = frozenset(wrap_dims(sumdim, total))
    full: list[Size] = [0] * total
    shapes = []
    for spec, added in ((i1, expand1), (i2, expand2), (i3, expand3)):
        sizes = list(spec.sizes)
        for at in sorted(added):
            sizes.insert(at, 1)
        if len(sizes) != total:
            raise ShapeError(f"{show(spec.sizes)} with dimensions added has not {total} dimensions")
        shapes.append(tuple(sizes))
        for at in range(total):
            if at not in added:
                full[at] = sizes[at]
    need_numbers(i1)
    need_same("i2", i2, "i1", i1)
    need_same("i3", i3, "i1", i1)
    if not any(has_zero(sizes) for sizes in shapes):
        for shape in shapes:
            fit_into("a tensor", shape, full)
    return i1.fresh(tuple(size for d, size in enumerate(full) if d not in gone))


@rule("aten._addmm_activation.default")
def addmm_activation(
    self: TensorSpec,
    mat1: TensorSpec,
    mat2: TensorSpec,
    *,
    beta: Any = 1,
    alpha: Any = 1,
    use_gelu: bool = False,
) -> TensorSpec:
    """``addmm``, then relu or gelu."""
    return addmm(self, mat1, mat2, beta=beta, alpha=alpha)


@rule("aten._int_mm.default")
def int_mm(self: TensorSpec, mat2: TensorSpec) -> TensorSpec:
    """``(n, k) @ (k, m) -> (n, m)`` of int8 (uint8) numbers in int32."""
    need_rank("self", self, 2)
    need_rank("mat2", mat2, 2)
    need_dtype("self", self, (torch.int8, torch.uint8))
    need_dtype("mat2", mat2, (torch.int8,))
    need_equal(self.sizes[1], mat2.sizes[0], f"{show(self.sizes)} @ {show(mat2.sizes)}")
    return TensorSpec.contiguous((self.sizes[0], mat2.sizes[1]), torch.int32, self.device)


@rule("aten._scaled_mm.default")
def scaled_mm(
    self: TensorSpec,
    mat2: TensorSpec,
    scale_a: TensorSpec,
    scale_b: TensorSpec,
    bias: TensorSpec | None = None,
    scale_result: TensorSpec | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> TensorSpec:
    """``(n, k) @ (k, m) -> (n, m)`` of scaled 8-bit floats, in ``out_dtype``."""
    need_rank("self", self, 2)
    need_rank("mat2", mat2, 2)
    need_equal(self.sizes[1], mat2.sizes[0], f"{show(self.sizes)} @ {show(mat2.sizes)}")
    return TensorSpec.contiguous(
        (self.sizes[0], mat2.sizes[1]), out_dtype or self.dtype, self.device
    )
