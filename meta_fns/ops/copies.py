"""Copies, and what is written over a tensor whole: clone, to, copy_, fill, zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.broadcasting import expand
from meta_fns.core.checks import has_zero
from meta_fns.core.derived_rules import need_writable
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, same, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import ShapeError, UnsupportedOp
from meta_fns.ops.factories import Device, like, need_number_fits
from meta_fns.padding import pointwise as padded_pointwise

__all__: list[str] = []


@rule("aten._to_copy.default", padding=padded_pointwise.pointwise)
def to_copy(
    self: TensorSpec,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> TensorSpec:
    """A copy of another dtype, device or memory format."""
    return like(self, dtype, device, layout, memory_format)


@rule("aten.clone.default", padding=padded_pointwise.pointwise)
def clone(self: TensorSpec, *, memory_format: torch.memory_format | None = None) -> TensorSpec:
    """A copy; dense layouts are kept unless a memory format is given."""
    return like(self, None, None, None, memory_format)


@rule("aten.copy.default", padding=padded_pointwise.pointwise)
def copy(self: TensorSpec, src: TensorSpec, non_blocking: bool = False) -> TensorSpec:
    """``src``, which must broadcast to the sizes of ``self``, in the likeness of ``self``."""
    expand(src.sizes, src.strides, self.sizes)
    return like(self, None, None, None, None)


@rule("aten.fill.Scalar", "aten.fill.Tensor", padding=padded_pointwise.pointwise)
def fill(self: TensorSpec, value: Any) -> TensorSpec:
    """A number, or a 0-d tensor, in the likeness of ``self``."""
    if type(value) is not TensorSpec:
        need_number_fits(value, self.dtype)
    elif value.sizes:
        raise ShapeError(f"fill needs a 0-d value, got {show(value.sizes)}")
    return like(self, None, None, None, None)


@rule("aten.zero.default", padding=padded_pointwise.pointwise)
def zero(self: TensorSpec) -> TensorSpec:
    """Zeros in the likeness of ``self``."""
    return like(self, None, None, None, None)


@rule("aten.copy_.default")
def copy_(self: TensorSpec, src: TensorSpec, non_blocking: bool = False) -> TensorSpec:
    """``src``, which must broadcast to the sizes of ``self``, written into ``self``."""
    expand(src.sizes, src.strides, self.sizes)
    if _shares_memory(self) and _looks_like(self, src):
        raise UnsupportedOp(
            "copying into elements that share memory: eager does so only from the very same "
            "elements"
        )
    need_writable(self)
    return self


def _shares_memory(spec: TensorSpec) -> bool:
    """True if a dimension is expanded; asks of its size."""
    expanded = [
        s
        for s, t in zip(spec.sizes, spec.strides, strict=True)
        if type(t) is int and t == 0 and not same(s, 1)
    ]
    return any(size > 1 for size in expanded) and not has_zero(spec.sizes)


def _looks_like(self: TensorSpec, other: TensorSpec) -> bool:
    """True if both may be one tensor: all that a spec says is the same. May ask."""
    return (
        self.dtype is other.dtype
        and self.device == other.device
        and len(self.sizes) == len(other.sizes)
        and _all_equal(self.sizes, other.sizes)
        and _all_equal(self.strides, other.strides)
        and _all_equal((self.storage_offset,), (other.storage_offset,))
    )


def _all_equal(mine: Sequence[Size], others: Sequence[Size]) -> bool:
    return all(same(a, b) or bool(a == b) for a, b in zip(mine, others, strict=True))
