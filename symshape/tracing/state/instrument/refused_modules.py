"""Modules that cannot be traced at all: refused by their class before anything runs."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from symshape.errors import Reason, UnsupportedError

_INITIALIZED = frozenset({torch.nn.Parameter, torch.nn.Buffer, torch.Tensor, type(None)})


_PREPARED_EACH_CALL = frozenset(
    {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"}
)
"""The classes of torch whose forward also prepares, at each call, the exchange of gradients between
ranks.
"""


# classes die as their programs do
_known: WeakKeyDictionary[type, frozenset[str]] = WeakKeyDictionary()


def _prepared(kind: type) -> frozenset[str]:
    found = _known.get(kind)
    if found is None:
        found = _known[kind] = _PREPARED_EACH_CALL.intersection(
            each.__name__ for each in kind.__mro__
        )
    return found


def _shown(module: torch.nn.Module, name: str) -> str:
    return f"the module {name or type(module).__name__}"


def refuse_untraceable(module: torch.nn.Module, name: str) -> None:
    """Check that one module (not those inside it) can be traced; the program calls it ``name``.

    Raises:
        UnsupportedError: it is compiled by TorchScript, its parameters are made by its first call,
            or it exchanges parameters or gradients with other ranks.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedError(
            f"{_shown(module, name)} is a ScriptModule, whose code and state cannot be read; "
            "trace the module that it was made from",
            reason=Reason.MODULES,
        )
    for table in (module._parameters, module._buffers):
        for each in table.values():
            if type(each) not in _INITIALIZED and issubclass(type(each), UninitializedTensorMixin):
                raise UnsupportedError(
                    f"{_shown(module, name)} is a lazy module: its first call creates its "
                    "parameters, which a trace would undo; call it once before it is traced",
                    reason=Reason.MODULES,
                )
    own: type = type(module)
    around = _prepared(own)
    if around and (torch.is_grad_enabled() or "DistributedDataParallel" not in around):
        (kind, *_) = sorted(around)
        instead = f"compile the module inside of it instead: {kind}(symshape.compile(module))"
        if kind == "FSDPModule":  # a module that is sharded itself becomes one
            instead = (
                "compile a module inside of it instead: fully_shard(m), where m.inner = "
                "symshape.compile(module)"
            )
        raise UnsupportedError(
            f"{_shown(module, name)} is a {kind}, which prepares its communication with other "
            "ranks in each call; "
            f"{instead}",
            reason=Reason.MODULES,
        )
