"""New tensors: of given sizes, and in the likeness of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from meta_fns.core import dense, layout
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, check, known, show
from meta_fns.core.spec import CPU, TensorSpec
from meta_fns.core.type_promotion import number_dtype
from meta_fns.errors import DtypeError, ShapeError, UnsupportedOp
from meta_fns.padding import factories as padded_factories

__all__ = ["Device", "fresh", "like", "need_number_fits", "need_strided", "target_device"]

Device: TypeAlias = Any


def target_device(device: Any, default: torch.device = CPU) -> torch.device:
    """The device asked for, with its index, or the default."""
    if device is None:
        return default
    found = device if isinstance(device, torch.device) else torch.device(device)
    index: int | None = found.index
    if index is not None or found.type in ("cpu", "meta"):
        return found
    if found.type == default.type:
        return default
    return torch.device(found.type, torch.cuda.current_device() if torch.cuda.is_available() else 0)


def need_strided(layout_: Any) -> None:
    """Raise UnsupportedOp for a sparse layout."""
    if layout_ is not None and layout_ is not torch.strided:
        raise UnsupportedOp(f"no rule for layout {layout_}")


def _sizes(size: Sequence[Size]) -> tuple[Size, ...]:
    for item in size:
        if not (type(item) is int and item >= 0) and not known(item >= 0):
            check(item >= 0, lambda: f"a negative size in {show(size)}")
    return tuple(size)


def fresh(
    size: Sequence[Size],
    dtype: torch.dtype | None,
    device: Any,
    layout_: torch.layout | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorSpec:
    """A new tensor of the given sizes: the default dtype and the CPU unless told."""
    need_strided(layout_)
    sizes = _sizes(size)
    dtype = dtype or torch.get_default_dtype()
    where = CPU if device is None else target_device(device)
    if memory_format is None or memory_format is torch.contiguous_format:
        return TensorSpec.contiguous(sizes, dtype, where)
    return TensorSpec(sizes, layout.strides_of_format(sizes, memory_format), 0, dtype, where)


@rule("aten.empty.memory_format", padding=padded_factories.filled)
def empty(
    size: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorSpec:
    """A new tensor of the given sizes and memory format."""
    return fresh(size, dtype, device, layout, memory_format)


@rule("aten.zeros.default", "aten.ones.default", name="new tensor", padding=padded_factories.filled)
def zeros(
    size: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new contiguous tensor."""
    return fresh(size, dtype, device, layout)


@rule("aten.full.default", padding=padded_factories.filled)
def full(
    size: Sequence[Size],
    fill_value: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new contiguous tensor; without a dtype that of the number (int64 for ints)."""
    need_number_fits(fill_value, dtype)
    return fresh(size, dtype or number_dtype(fill_value), device, layout)


@rule("aten.empty_strided.default", padding=padded_factories.strided)
def empty_strided(
    size: Sequence[Size],
    stride: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new tensor of the given sizes and strides."""
    need_strided(layout)
    if len(size) != len(stride):
        raise ShapeError(f"sizes {show(size)} and strides {show(stride)} differ in length")
    for item in stride:
        check(item >= 0, lambda: f"a negative stride in {show(stride)}")
    dtype = dtype or torch.get_default_dtype()
    return TensorSpec(_sizes(size), tuple(stride), 0, dtype, target_device(device))


def need_number_fits(value: Any, dtype: torch.dtype | None) -> None:
    """Raise DtypeError for a complex number into a real dtype."""
    if isinstance(value, complex) and dtype is not None and not dtype.is_complex:
        raise DtypeError(f"{value} cannot be converted to {dtype}")


@rule("aten.scalar_tensor.default", padding=padded_factories.number)
def scalar_tensor(
    s: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A 0-d tensor: of the default dtype unless told, whatever the number."""
    return fresh((), dtype, device, layout)


def like(
    self: TensorSpec,
    dtype: torch.dtype | None,
    device: Any,
    layout_: torch.layout | None,
    memory_format: torch.memory_format | None,
) -> TensorSpec:
    """A new tensor in the likeness of another: its sizes; unless told, its layout as far as dense,
    dtype and device.
    """
    if layout_ is not None:
        need_strided(layout_)
    where = self.device if device is None else target_device(device, self.device)
    dtype = dtype or self.dtype
    if self.canonical_known and (memory_format is None or memory_format is torch.preserve_format):
        return TensorSpec(self.sizes, self.strides, 0, dtype, where, torch.strided, True)
    strides = dense.like_strides(self.sizes, self.strides, memory_format)
    return TensorSpec(self.sizes, strides, 0, dtype, where)


@rule(
    "aten.empty_like.default",
    "aten.zeros_like.default",
    "aten.ones_like.default",
    name="new tensor like another",
    padding=padded_factories.like,
)
def zeros_like(
    self: TensorSpec,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorSpec:
    """A new tensor in the likeness of another."""
    return like(self, dtype, device, layout, memory_format)


@rule("aten.full_like.default", padding=padded_factories.like)
def full_like(
    self: TensorSpec,
    fill_value: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorSpec:
    """A new tensor in the likeness of another, its dtype too (not that of the number)."""
    need_number_fits(fill_value, dtype or self.dtype)
    return like(self, dtype, device, layout, memory_format)


def _new(
    self: TensorSpec, size: Sequence[Size], dtype: torch.dtype | None, device: Any, layout_: Any
) -> TensorSpec:
    need_strided(layout_)
    return TensorSpec.contiguous(
        _sizes(size), dtype or self.dtype, target_device(device, self.device)
    )


@rule(
    "aten.new_empty.default",
    "aten.new_zeros.default",
    "aten.new_ones.default",
    name="new tensor",
    padding=padded_factories.filled,
)
def new_zeros(
    self: TensorSpec,
    size: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new contiguous tensor of the given sizes, of the dtype and on the device of another."""
    return _new(self, size, dtype, device, layout)


@rule("aten.new_full.default", padding=padded_factories.filled)
def new_full(
    self: TensorSpec,
    size: Sequence[Size],
    fill_value: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new contiguous tensor of the given sizes, of the dtype and on the device of another."""
    need_number_fits(fill_value, dtype or self.dtype)
    return _new(self, size, dtype, device, layout)


@rule("aten.new_empty_strided.default", padding=padded_factories.strided)
def new_empty_strided(
    self: TensorSpec,
    size: Sequence[Size],
    stride: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new tensor of the given sizes and strides, of the dtype and on the device of another."""
    where = target_device(device, self.device)
    return empty_strided(size, stride, dtype=dtype or self.dtype, layout=layout, device=where)
