"""Modules that cannot be traced, whatever they compute: refused by name before anything runs."""

from __future__ import annotations

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from symshape.errors import UnsupportedError

_INITIALIZED = frozenset({torch.nn.Parameter, torch.nn.Buffer, torch.Tensor, type(None)})


def _shown(module: torch.nn.Module, name: str) -> str:
    return f"the module {name or type(module).__name__}"


def refuse_untraceable(module: torch.nn.Module, name: str) -> None:
    """Checks one module (not those inside it), which the program calls ``name``.

    Raises:
        UnsupportedError: it is compiled by TorchScript, or its parameters are made by its first call.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedError(
            f"{_shown(module, name)} is a ScriptModule, whose code and state cannot be read; "
            "trace the module that it was made from"
        )
    kinds = {*map(type, module._parameters.values()), *map(type, module._buffers.values())}
    if not kinds <= _INITIALIZED and any(issubclass(each, UninitializedTensorMixin) for each in kinds):
        raise UnsupportedError(
            f"{_shown(module, name)} is lazy: its first call makes its parameters, which a trace would undo; "
            "call it once before it is traced"
        )
