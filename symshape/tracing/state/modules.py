"""Modules that cannot be traced, whatever they compute: refused by name before anything runs."""

from __future__ import annotations

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from symshape.errors import UnsupportedError


def refuse_untraceable(module: torch.nn.Module, name: str) -> None:
    """Checks one module (not those inside it), which the program calls ``name``.

    Raises:
        UnsupportedError: it is compiled by TorchScript, or its parameters are made by its first call.
    """
    shown = f"the module {name or type(module).__name__}"
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedError(
            f"{shown} is a ScriptModule, whose code and state cannot be read; trace the module that it was made from"
        )
    tensors = (*module._parameters.values(), *module._buffers.values())
    if any(isinstance(each, UninitializedTensorMixin) for each in tensors):
        raise UnsupportedError(
            f"{shown} is lazy: its first call makes its parameters, which a trace would undo; call it once before it "
            "is traced"
        )
