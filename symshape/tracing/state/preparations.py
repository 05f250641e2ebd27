"""What a library prepares once, when it is first needed: done outside of the trace, which begins again then.

It writes (hooks into modules, a flag that says that they are there) under a lock, so a graph could not do it again.  As
nothing hangs on who does it when, it stays done, also when the trace fails after all.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from symshape.errors import note_refusal
from symshape.tracing.intercept.builtins import PlainType

_PREPARATIONS = (
    ("transformers.utils.output_capturing", "maybe_install_capturing_hooks", "_output_capturing_hooks_installed"),
)
"""A module, a function of an object, and the attribute that tells of an object that it was done (transformers 5)."""
_REGISTRIES = (("einops._backends", "get_backend", "_type2backend"),)
"""A module, a function of a tensor, and the module's dictionary where it looks the class up (einops 0.6 to 0.8)."""


class ToPrepare(BaseException):
    """A trace ends because something is to be prepared first.

    The program is not to catch it as an error of its own; where it does all the same, it is raised again at its end.

    Args:
        text: what, for people.
        prepare: does it.
    """

    def __init__(self, text: str, prepare: Callable[[], object]) -> None:
        super().__init__(text)
        self._prepare = prepare
        note_refusal(self)

    def fill(self) -> bool:
        """Prepares; whether that went well."""
        try:
            self._prepare()
        except Exception:  # the program itself may catch it
            return False
        return True


def preparations(read: Callable[[Any, str], None]) -> dict[int, Any]:
    """By ``id`` of each function that prepares something, of those that are imported: what code gets instead.

    Args:
        read: told of an object and the name of an attribute that is about to be read.
    """

    def prepared(function: Callable[[Any], Any], flag: str, owner: Any) -> None:
        if not getattr(owner, flag, False):
            text = f"prepares a {type(owner).__name__}, which it does in each call; call it once before"
            raise ToPrepare(text, functools.partial(function, owner))
        read(owner, flag)

    found = [(getattr(sys.modules.get(module), name, None), flag) for module, name, flag in _PREPARATIONS]
    made = {id(each): functools.partial(prepared, each, flag) for each, flag in found if each is not None}
    return made | {id(each.args[0]): each for each in _registries()}


def _registries() -> list[functools.partial[Any]]:
    """For each function with a registry of classes that is imported, and traces: what code gets instead."""
    found = ((sys.modules.get(module), name, key) for module, name, key in _REGISTRIES)
    return [
        functools.partial(_registered, getattr(module, name), getattr(module, key))
        for module, name, key in found
        if isinstance(getattr(module, name, None), types.FunctionType) and type(getattr(module, key, None)) is dict
    ]


def _registered(function: Callable[[Any], Any], registry: dict[Any, Any], tensor: Any, *rest: Any, **more: Any) -> Any:
    """Call a function that registers the class of a tensor when it meets the first one: outside of a trace."""
    if isinstance(tensor, torch.Tensor) and PlainType(tensor) is torch.Tensor and torch.Tensor not in registry:
        text = (
            f"makes {function.__name__} look up its tensor backend, which happens once in a process; call the "
            "function once before it is traced"
        )
        raise ToPrepare(text, lambda: function(torch.empty(0)))
    return function(tensor, *rest, **more)
