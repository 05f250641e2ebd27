"""Torch's modes that change what a program computes."""

from __future__ import annotations

from typing import Any

import torch

_AUTOCAST_DEVICES = ("cpu", "cuda")

_is_grad_enabled = torch.is_grad_enabled
_is_inference = torch.is_inference_mode_enabled
_any_autocast = torch._C._is_any_autocast_enabled
_default_dtype = torch.get_default_dtype
_function_modes = torch._C._len_torch_function_stack


def modes() -> tuple[Any, ...]:
    """Torch's modes that change what a program computes: gradients, inference, autocast, default dtype and device."""
    plain = (_is_grad_enabled(), _is_inference(), _default_dtype())
    if not _any_autocast() and not _function_modes():
        return plain
    autocast = tuple(
        (device, torch.get_autocast_dtype(device)) for device in _AUTOCAST_DEVICES if torch.is_autocast_enabled(device)
    )
    return (*plain, autocast, str(torch.get_default_device()) if _function_modes() else "")


def describe_modes(key: tuple[Any, ...]) -> str:
    """The modes for people."""
    grad, inference, dtype, *rest = key
    parts = ["inference mode" if inference else "grad mode" if grad else "no_grad", f"default dtype {dtype}"]
    if rest and rest[0]:
        parts.append("autocast " + ", ".join(f"{device} {dtype}" for device, dtype in rest[0]))
    if len(rest) > 1 and rest[1]:
        parts.append(f"default device {rest[1]}")
    return ", ".join(parts)
