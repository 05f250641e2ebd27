"""New tensors: from sizes, from numbers, in the likeness of another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from meta_fns.core import dense, layout
from meta_fns.core.broadcasting import expand
from meta_fns.core.checks import has_zero
from meta_fns.core.derived import need_writable
from meta_fns.core.promote import number_dtype
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, ceil_div, check, known, same, show
from meta_fns.core.spec import CPU, TensorSpec
from meta_fns.errors import DtypeError, ShapeError, UnsupportedOp

__all__ = ["fresh", "like", "target_device"]

_Device: TypeAlias = Any


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


def _need_strided(layout_: Any) -> None:
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
    _need_strided(layout_)
    sizes = _sizes(size)
    dtype = dtype or torch.get_default_dtype()
    where = CPU if device is None else target_device(device)
    if memory_format is None or memory_format is torch.contiguous_format:
        return TensorSpec.contiguous(sizes, dtype, where)
    return TensorSpec(sizes, layout.strides_of_format(sizes, memory_format), 0, dtype, where)


@rule("aten.empty.memory_format")
def empty(
    size: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: _Device = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorSpec:
    """A new tensor of the given sizes and memory format."""
    return fresh(size, dtype, device, layout, memory_format)


@rule("aten.zeros.default", "aten.ones.default", name="new tensor")
def zeros(
    size: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: _Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new contiguous tensor."""
    return fresh(size, dtype, device, layout)


@rule("aten.full.default")
def full(
    size: Sequence[Size],
    fill_value: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: _Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new contiguous tensor; without a dtype that of the number (int64 for ints)."""
    need_number_fits(fill_value, dtype)
    return fresh(size, dtype or number_dtype(fill_value), device, layout)


@rule("aten.empty_strided.default")
def empty_strided(
    size: Sequence[Size],
    stride: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: _Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new tensor of the given sizes and strides."""
    _need_strided(layout)
    if len(size) != len(stride):
        raise ShapeError(f"sizes {show(size)} and strides {show(stride)} differ in length")
    for item in stride:
        check(item >= 0, lambda: f"a negative stride in {show(stride)}")
    dtype = dtype or torch.get_default_dtype()
    return TensorSpec(_sizes(size), tuple(stride), 0, dtype, target_device(device))


def need_number_fits(value: Any, dtype: torch.dtype | None) -> None:
    """Raises: DtypeError for a complex number into a real dtype."""
    if isinstance(value, complex) and dtype is not None and not dtype.is_complex:
        raise DtypeError(f"{value} cannot be converted to {dtype}")


@rule("aten.scalar_tensor.default")
def scalar_tensor(
    s: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: _Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A 0-d tensor: of the default dtype unless told, whatever the number."""
    return fresh((), dtype, device, layout)


@rule("aten.arange.default")
def arange(
    end: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: _Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """`0 .. end`, exclusive."""
    return arange_start_step(0, end, 1, dtype=dtype, layout=layout, device=device)


@rule("aten.arange.start", name="arange")
def arange_start(
    start: Any,
    end: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: _Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """`start .. end`, exclusive."""
    return arange_start_step(start, end, 1, dtype=dtype, layout=layout, device=device)


@rule("aten.arange.start_step", name="arange")
def arange_start_step(
    start: Any,
    end: Any,
    step: Any = 1,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: _Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """`start .. end`, exclusive, by `step`: int64 if all three are ints, else the default dtype."""
    _need_strided(layout)
    numbers = (start, end, step)
    if dtype is None:
        whole = all(type(n) is int or number_dtype(n) in (torch.int64, torch.bool) for n in numbers)
        dtype = torch.int64 if whole else torch.get_default_dtype()
    if dtype.is_complex or dtype is torch.bool:
        raise DtypeError(f"arange is not implemented for {dtype}")
    return TensorSpec(
        (_arange_size(start, end, step, dtype),), (1,), 0, dtype, target_device(device), torch.strided, True
    )


def _arange_size(start: Any, end: Any, step: Any, dtype: torch.dtype) -> Size:
    if all(isinstance(n, (int, float)) for n in (start, end, step)):
        return _arange_static(start, end, step, dtype)
    if any(isinstance(n, float) or number_dtype(n).is_floating_point for n in (start, end, step)):
        raise UnsupportedOp(f"arange({start}, {end}, {step}): the size of a symbolic float range is not known")
    if known(step > 0) or (not known(step < 0) and step > 0):
        span = end if type(start) is int and start == 0 else end - start
    else:
        check(step < 0, "arange: step must not be 0")
        span, step = start - end, -step
    if not known(span >= 0):
        check(span >= 0, lambda: f"arange: bounds {start}, {end} are inconsistent with the sign of the step")
    return span if type(step) is int and step == 1 else ceil_div(span, step)


def _arange_static(start: float, end: float, step: float, dtype: torch.dtype) -> int:
    if step == 0 or (dtype is torch.int64 and int(step) == 0):
        raise ShapeError("arange: step must not be 0")
    if not all(math.isfinite(n) for n in (start, end)):
        raise ShapeError(f"arange: unsupported range {start} to {end}")
    if (end - start) * (1 if step > 0 else -1) < 0:
        raise ShapeError(f"arange: bounds {start}, {end} are inconsistent with the sign of step {step}")
    if dtype is torch.int64:
        return -((int(start) - int(end)) // int(step))
    return math.ceil((float(end) - float(start)) / float(step))


def like(
    self: TensorSpec,
    dtype: torch.dtype | None,
    device: Any,
    layout_: torch.layout | None,
    memory_format: torch.memory_format | None,
) -> TensorSpec:
    """A new tensor in the likeness of another: its sizes, its memory layout as far as dense, its dtype and device
    unless told.
    """
    if layout_ is not None:
        _need_strided(layout_)
    where = self.device if device is None else target_device(device, self.device)
    dtype = dtype or self.dtype
    if self.canonical_known and (memory_format is None or memory_format is torch.preserve_format):
        return TensorSpec(self.sizes, self.strides, 0, dtype, where, torch.strided, True)
    strides = dense.like_strides(self.sizes, self.strides, memory_format)
    return TensorSpec(self.sizes, strides, 0, dtype, where)


@rule("aten.empty_like.default", "aten.zeros_like.default", "aten.ones_like.default", name="new tensor like another")
def zeros_like(
    self: TensorSpec,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: _Device = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorSpec:
    """A new tensor in the likeness of another."""
    return like(self, dtype, device, layout, memory_format)


@rule("aten.full_like.default")
def full_like(
    self: TensorSpec,
    fill_value: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: _Device = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorSpec:
    """A new tensor in the likeness of another, its dtype too (not that of the number)."""
    need_number_fits(fill_value, dtype or self.dtype)
    return like(self, dtype, device, layout, memory_format)


@rule("aten._to_copy.default")
def to_copy(
    self: TensorSpec,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: _Device = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> TensorSpec:
    """A copy of another dtype, device or memory format."""
    return like(self, dtype, device, layout, memory_format)


@rule("aten.clone.default")
def clone(self: TensorSpec, *, memory_format: torch.memory_format | None = None) -> TensorSpec:
    """A copy; dense layouts are kept unless a memory format is given."""
    return like(self, None, None, None, memory_format)


def _new(self: TensorSpec, size: Sequence[Size], dtype: torch.dtype | None, device: Any, layout_: Any) -> TensorSpec:
    _need_strided(layout_)
    return TensorSpec.contiguous(_sizes(size), dtype or self.dtype, target_device(device, self.device))


@rule("aten.new_empty.default", "aten.new_zeros.default", "aten.new_ones.default", name="new tensor")
def new_zeros(
    self: TensorSpec,
    size: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: _Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new contiguous tensor of the given sizes, of the dtype and on the device of another."""
    return _new(self, size, dtype, device, layout)


@rule("aten.new_full.default")
def new_full(
    self: TensorSpec,
    size: Sequence[Size],
    fill_value: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: _Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new contiguous tensor of the given sizes, of the dtype and on the device of another."""
    need_number_fits(fill_value, dtype or self.dtype)
    return _new(self, size, dtype, device, layout)


@rule("aten.new_empty_strided.default")
def new_empty_strided(
    self: TensorSpec,
    size: Sequence[Size],
    stride: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: _Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new tensor of the given sizes and strides, of the dtype and on the device of another."""
    where = target_device(device, self.device)
    return empty_strided(size, stride, dtype=dtype or self.dtype, layout=layout, device=where)


@rule("aten.copy.default")
def copy(self: TensorSpec, src: TensorSpec, non_blocking: bool = False) -> TensorSpec:
    """`src`, which must broadcast to the sizes of `self`, in the likeness of `self`."""
    expand(src.sizes, src.strides, self.sizes)
    return like(self, None, None, None, None)


@rule("aten.fill.Scalar", "aten.fill.Tensor")
def fill(self: TensorSpec, value: Any) -> TensorSpec:
    """A number, or a 0-d tensor, in the likeness of `self`."""
    if type(value) is not TensorSpec:
        need_number_fits(value, self.dtype)
    elif value.sizes:
        raise ShapeError(f"fill needs a 0-d value, got {show(value.sizes)}")
    return like(self, None, None, None, None)


@rule("aten.zero.default")
def zero(self: TensorSpec) -> TensorSpec:
    """Zeros in the likeness of `self`."""
    return like(self, None, None, None, None)


@rule("aten.copy_.default")
def copy_(self: TensorSpec, src: TensorSpec, non_blocking: bool = False) -> TensorSpec:
    """`src`, which must broadcast to the sizes of `self`, written into `self`."""
    expand(src.sizes, src.strides, self.sizes)
    if _shares_memory(self) and _looks_like(self, src):
        raise UnsupportedOp("copying into elements that share memory: eager does so only from the very same elements")
    need_writable(self)
    return self


def _shares_memory(spec: TensorSpec) -> bool:
    """True if a dimension is expanded; asks of its size."""
    expanded = [
        s for s, t in zip(spec.sizes, spec.strides, strict=True) if type(t) is int and t == 0 and not same(s, 1)
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
