"""Questions of each element, and choices by a mask: isfinite, isinf, equal, where, masked_fill."""

from __future__ import annotations

from typing import Any

import torch

from meta_fns.core import dense, type_promotion
from meta_fns.core.broadcasting import broadcast
from meta_fns.core.registry import Context, rule
from meta_fns.core.sizes import known
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import common_device, iterate
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.padding import pointwise as padded_pointwise

__all__: list[str] = []


@rule("aten.equal.default", data_dependent=True)
def equal(ctx: Context, self: TensorSpec, other: TensorSpec) -> Any:
    """Return whether sizes and values agree: this depends on data, unless the sizes provably
    differ.
    """
    if len(self.sizes) != len(other.sizes):
        return False
    if any(a is not b and known(a != b) for a, b in zip(self.sizes, other.sizes, strict=True)):
        return False
    return ctx.new_bool()


@rule("aten.isfinite.default", padding=padded_pointwise.pointwise)
def isfinite(self: TensorSpec) -> TensorSpec:
    """True where neither infinite nor NaN: laid out like integers, as
    ``(self == self) * (abs(self) != inf)`` else.
    """
    if not type_promotion.is_float(self.dtype):
        return _bool_like(self)
    parts = self
    if self.dtype.is_complex:
        parts = self.view(self.sizes, tuple(2 * stride for stride in self.strides))
    size = iterate((parts,), self.dtype)
    return iterate(
        (iterate((parts, parts), torch.bool), iterate((size,), torch.bool, numbers=True)),
        torch.bool,
    )


@rule("aten.isinf.default", padding=padded_pointwise.pointwise)
def isinf(self: TensorSpec) -> TensorSpec:
    """True where infinite: laid out like integers, as ``abs(self) == inf`` else."""
    if not type_promotion.is_float(self.dtype):
        return _bool_like(self)
    parts = self
    if self.dtype.is_complex:
        parts = self.view(self.sizes, tuple(2 * stride for stride in self.strides))
    return iterate((iterate((parts,), self.dtype),), torch.bool, numbers=True)


def _bool_like(self: TensorSpec) -> TensorSpec:
    strides = dense.like_strides(self.sizes, self.strides, None)
    return TensorSpec(self.sizes, strides, 0, torch.bool, self.device)


@rule("aten.where.self", padding=padded_pointwise.pointwise)
def where(condition: TensorSpec, self: Any, other: Any) -> TensorSpec:
    """``self`` where the condition holds, else ``other``; the three broadcast, the last two
    promote.
    """
    if condition.dtype is not torch.bool and condition.dtype is not torch.uint8:
        raise DtypeError(f"condition must be bool, got {condition.dtype}")
    same = type(self) is TensorSpec and type(other) is TensorSpec and self.dtype is other.dtype
    common = self.dtype if same else type_promotion.result_type((self, other))
    tensors = [condition]
    for operand in (self, other):
        if type(operand) is TensorSpec:
            if operand.dtype is not common:
                strides = dense.like_strides(operand.sizes, operand.strides, None)
                operand = operand.with_(dtype=common, strides=strides, storage_offset=0)
            tensors.append(operand)
    return iterate(tensors, common)


@rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", padding=padded_pointwise.pointwise)
def masked_fill(self: TensorSpec, mask: TensorSpec, value: Any) -> TensorSpec:
    """``value`` where the mask holds, else ``self``, which broadcast; contiguous whatever the
    layout of ``self``.
    """
    if mask.dtype is not torch.bool:
        raise DtypeError(f"mask must be bool, got {mask.dtype}")
    if type(value) is TensorSpec:
        if value.sizes:
            raise ShapeError(f"value must be 0-d, got {len(value.sizes)} dimensions")
    elif isinstance(value, complex) and not self.dtype.is_complex:
        raise DtypeError(f"a complex value does not fit into {self.dtype}")
    if self.sizes is mask.sizes:
        return self.fresh()
    return TensorSpec.contiguous(
        broadcast(self.sizes, mask.sizes), self.dtype, common_device((self, mask))
    )
