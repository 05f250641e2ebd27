"""Libraries' preparations at first use: they run outside of the trace, which then starts again.

A preparation writes under a lock: hooks into modules, and a flag that says that they are there.  A
graph could not repeat that.  The time of a preparation does not matter, so it stays done, also when
the trace fails after all.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from symshape.errors import Reason
from symshape.tracing.intercept.python_numbers.builtins import PlainType
from symshape.tracing.restart import Restart, after

_PREPARATIONS = (
    (
        "transformers.utils.output_capturing",
        "maybe_install_capturing_hooks",
        "_output_capturing_hooks_installed",
    ),
)
"""A module, a function of an object, and the object's attribute that is true once it is prepared
(transformers 5).
"""
_REGISTRIES = (("einops._backends", "get_backend", "_type2backend"),)
"""A module, a function of a tensor, and the module's dictionary where it looks the class up (einops
0.6 to 0.8).
"""


def preparations(read: Callable[[Any, str], None]) -> dict[int, Any]:
    """Return what traced code gets instead of each imported function that prepares something, by
    the function's ``id``.

    Args:
        read: called with an object and the name of an attribute before that is read.
    """

    def prepared(function: Callable[[Any], Any], flag: str, owner: Any) -> None:
        if not getattr(owner, flag, False):
            text = (
                f"prepares a {type(owner).__name__}, which it does in each call; call it once "
                "before"
            )
            raise Restart(
                text, after(functools.partial(function, owner)), Reason.MEMO, prepares=True
            )
        read(owner, flag)

    found = [
        (getattr(sys.modules.get(module), name, None), flag) for module, name, flag in _PREPARATIONS
    ]
    made = {
        id(each): functools.partial(prepared, each, flag)
        for each, flag in found
        if each is not None
    }
    return made | {id(each.args[0]): each for each in _registries()}


def _registries() -> list[functools.partial[Any]]:
    """For each function with a registry of classes that is imported, and traces: what code gets
    instead.
    """
    found = ((sys.modules.get(module), name, key) for module, name, key in _REGISTRIES)
    return [
        functools.partial(_registered, getattr(module, name), getattr(module, key))
        for module, name, key in found
        if isinstance(getattr(module, name, None), types.FunctionType)
        and type(getattr(module, key, None)) is dict
    ]


def _registered(
    function: Callable[[Any], Any], registry: dict[Any, Any], tensor: Any, *rest: Any, **more: Any
) -> Any:
    """Call a function that registers the class of the first tensor that it meets.

    Raises:
        Restart: the class is not registered yet; the function is called outside of the trace first.
    """
    if (
        isinstance(tensor, torch.Tensor)
        and PlainType(tensor) is torch.Tensor
        and torch.Tensor not in registry
    ):
        text = (
            f"makes {function.__name__} look up its tensor backend, which happens once in a "
            "process; call the function once before it is traced"
        )
        raise Restart(text, after(lambda: function(torch.empty(0))), Reason.MEMO, prepares=True)
    return function(tensor, *rest, **more)
