"""New tensors of random numbers, of given sizes or in the likeness of another. Values are data,
sizes are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.checks import refuse_unless_empty
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, check, known
from meta_fns.core.spec import TensorSpec
from meta_fns.core.type_promotion import is_float
from meta_fns.errors import DtypeError
from meta_fns.ops.factories import Device, fresh, like
from meta_fns.padding import factories

__all__ = ["need_range"]


@rule("aten.rand.default", "aten.randn.default", name="random floats", padding=factories.filled)
def rand(
    size: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new tensor of random floats."""
    if dtype is not None and not is_float(dtype):
        raise DtypeError(f"not implemented for {dtype}")
    return fresh(size, dtype, device, layout)


@rule("aten.rand.generator", "aten.randn.generator", name="random floats")
def rand_generator(
    size: Sequence[Size],
    *,
    generator: Any,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """The same from a generator."""
    return rand(size, dtype=dtype, layout=layout, device=device)


def need_range(low: Size, high: Size) -> None:
    """Require that there are integers in ``[low, high)``."""
    if not known(low < high):
        check(low < high, lambda: f"randint needs low < high, got {low} and {high}")


@rule("aten.randint.default", name="random integers", padding=factories.filled)
def randint(
    high: Size,
    size: Sequence[Size],
    *,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new tensor of integers below ``high``."""
    return randint_low(0, high, size, dtype=dtype, layout=layout, device=device)


@rule("aten.randint.low", name="random integers", padding=factories.filled)
def randint_low(
    low: Size,
    high: Size,
    size: Sequence[Size],
    *,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new tensor of integers in ``[low, high)``."""
    need_range(low, high)
    return fresh(size, dtype, device, layout)


@rule("aten.randint.generator", name="random integers")
def randint_generator(
    high: Size,
    size: Sequence[Size],
    *,
    generator: Any,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new tensor of integers below ``high``, from a generator."""
    return randint_low(0, high, size, dtype=dtype, layout=layout, device=device)


@rule("aten.randint.low_generator", name="random integers")
def randint_low_generator(
    low: Size,
    high: Size,
    size: Sequence[Size],
    *,
    generator: Any,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A new tensor of integers in ``[low, high)``, from a generator."""
    return randint_low(low, high, size, dtype=dtype, layout=layout, device=device)


@rule("aten.randperm.default")
def randperm(
    n: Size,
    *,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """A random order of ``0 .. n - 1``."""
    check(n >= 0, lambda: f"n must not be negative, got {n}")
    return fresh((n,), dtype, device, layout)


@rule("aten.randperm.generator", name="randperm")
def randperm_generator(
    n: Size,
    *,
    generator: Any,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """The same from a generator."""
    return randperm(n, dtype=dtype, layout=layout, device=device)


@rule("aten.rand_like.default", padding=factories.like)
def rand_like(
    self: TensorSpec,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorSpec:
    """Random floats laid out like ``self``."""
    if not is_float(dtype or self.dtype):
        raise DtypeError(f"not implemented for {dtype or self.dtype}")
    return like(self, dtype, device, layout, memory_format)


@rule("aten.randn_like.default", padding=factories.like)
def randn_like(
    self: TensorSpec,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorSpec:
    """Normally distributed floats laid out like ``self``."""
    if not is_float(dtype or self.dtype):
        refuse_unless_empty(f"not implemented for {dtype or self.dtype}", self.sizes)
    return like(self, dtype, device, layout, memory_format)


@rule("aten.randint_like.default", name="random integers", padding=factories.like)
def randint_like(
    self: TensorSpec,
    high: Size,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorSpec:
    """Integers below ``high`` laid out like ``self``."""
    need_range(0, high)
    return like(self, dtype, device, layout, memory_format)


@rule("aten.randint_like.low_dtype", name="random integers", padding=factories.like)
def randint_like_low(
    self: TensorSpec,
    low: Size,
    high: Size,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorSpec:
    """Integers in ``[low, high)`` laid out like ``self``."""
    need_range(low, high)
    return like(self, dtype, device, layout, memory_format)
