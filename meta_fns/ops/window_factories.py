"""Window functions as tensors: Hann, Hamming, Blackman, Bartlett, Kaiser."""

from __future__ import annotations

from typing import Any

import torch

from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, check
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError
from meta_fns.ops.factories import Device, fresh

__all__: list[str] = []


@rule(
    *(
        f"aten.{name}_window.default"
        for name in ("hann", "hamming", "blackman", "bartlett", "kaiser")
    ),
    *(
        f"aten.{name}_window.periodic"
        for name in ("hann", "hamming", "blackman", "bartlett", "kaiser")
    ),
    "aten.hamming_window.periodic_alpha",
    "aten.hamming_window.periodic_alpha_beta",
    "aten.kaiser_window.beta",
    name="window",
)
def window(
    window_length: Size,
    periodic: bool = True,
    *shape: Any,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """The weights of a window of ``(window_length,)``, whatever its form."""
    found = fresh((window_length,), dtype, device, layout)
    if not found.dtype.is_floating_point:
        raise DtypeError(f"a window is of a floating-point dtype, not {found.dtype}")
    check(window_length >= 0, f"the length of a window must not be negative, got {window_length}")
    return found
