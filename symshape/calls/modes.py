"""Torch's modes that change what a program computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs
import torch

from symshape.errors import Reason, UnsupportedError
from symshape.torch_internals import dispatch
from symshape.torch_internals.dispatch import DeviceContext

T = TypeVar("T")
R = TypeVar("R")

_AUTOCAST_DEVICES = ("cpu", "cuda")

_is_grad_enabled = torch.is_grad_enabled
_is_inference = torch.is_inference_mode_enabled
_any_autocast = dispatch.any_autocast
_default_dtype = torch.get_default_dtype
function_modes: Callable[[], int] = dispatch.function_mode_count
"""Return the number of active torch function modes."""


@attrs.frozen(eq=False)
class Modes:
    """Torch's modes at one moment.  There is one record for each combination: equal modes are the
    same object.

    Attributes:
        grad: whether gradients are recorded.
        inference: whether inference mode is on.
        dtype: the default dtype.
        autocast: the devices with autocast, each with its dtype.
        device: the default device, where a torch function mode (``with torch.device(...)``) may
            have set one; else "".
    """

    grad: bool
    inference: bool
    dtype: torch.dtype
    autocast: tuple[tuple[str, torch.dtype], ...] = ()
    device: str = ""

    @property
    def plain(self) -> bool:
        """True if neither autocast nor a function mode is active."""
        return not self.autocast and not self.device

    def __str__(self) -> str:
        parts = ["inference mode" if self.inference else "grad mode" if self.grad else "no_grad"]
        parts.append(f"default dtype {self.dtype}")
        if self.autocast:
            parts.append(
                "autocast " + ", ".join(f"{device} {dtype}" for device, dtype in self.autocast)
            )
        if self.device:
            parts.append(f"default device {self.device}")
        return ", ".join(parts)


_plain: tuple[tuple[dict[torch.dtype, Modes], ...], ...] = (({}, {}), ({}, {}))
"""The modes without autocast and function modes, by gradients, inference and default dtype."""
_special: dict[tuple[Any, ...], Modes] = {}


def modes() -> Modes:
    """Return torch's modes now."""
    if _any_autocast() or function_modes():
        return _special_modes()
    try:
        return _plain[_is_grad_enabled()][_is_inference()][_default_dtype()]
    except KeyError:
        grad, inference, dtype = _is_grad_enabled(), _is_inference(), _default_dtype()
        return _plain[grad][inference].setdefault(dtype, Modes(grad, inference, dtype))


IN_LINE = (
    "if any_autocast() or function_modes(): now = modes()",
    "else:",
    "    try: now = plain[grad()][inference()][dtype()]",
    "    except KeyError: now = modes()",
)
"""``now = modes()`` without a Python frame, for generated code in which ``NAMES`` are known."""
NAMES: dict[str, Any] = {
    "any_autocast": _any_autocast,
    "dtype": _default_dtype,
    "function_modes": function_modes,
    "grad": _is_grad_enabled,
    "inference": _is_inference,
    "modes": modes,
    "plain": _plain,
}


def _device() -> str:
    """Return the default device that a torch function mode sets.

    Raises:
        UnsupportedError: there is a function mode of the user's around a call, which would see the
            graph's operators once more.
    """
    stack = dispatch.function_modes()
    kinds = [type(each) for each in stack]
    if not any(kind.__module__.startswith("symshape.") for kind in kinds):  # not inside of a trace
        strange = [kind.__qualname__ for kind in kinds if kind is not DeviceContext]
        if strange:
            raise UnsupportedError(
                f"the torch function mode {strange[-1]} is active around the call, and would act "
                "on a compiled program twice: during the trace and in each run; call the "
                "uncompiled function there, or enter the mode inside the function",
                reason=Reason.FUNCTION_MODE,
            )
    return str(torch.get_default_device())


def past_users_modes(run: Callable[[T], R], args: T) -> R:
    """Run a function that the user's torch function modes have seen already: without these modes,
    as C++ does.

    Modes that set a default device stay. Inside a trace nothing changes, as its modes are ours.
    """
    stack = dispatch.function_modes()
    kept = [each for each in stack if type(each) is DeviceContext]
    if len(kept) == len(stack) or any(
        type(each).__module__.startswith("symshape.") for each in stack
    ):
        return run(args)
    _use(stack, kept)
    try:
        return run(args)
    finally:
        _use(kept, stack)


def _use(old: Sequence[Any], new: Sequence[Any]) -> None:
    """Replace the stack of torch function modes."""
    for _ in old:
        dispatch.pop_function_mode()
    for each in new:
        dispatch.push_function_mode(each)


def _special_modes() -> Modes:
    autocast = tuple(
        (d, torch.get_autocast_dtype(d)) for d in _AUTOCAST_DEVICES if torch.is_autocast_enabled(d)
    )
    device = _device() if function_modes() else ""
    read = (_is_grad_enabled(), _is_inference(), _default_dtype(), autocast, device)
    return _special.get(read) or _special.setdefault(read, Modes(*read))
