"""Look-ups in classes: attributes found in an object's classes, slots, and methods that Python
calls implicitly.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.state.record.places import (
    MISSING,
    PLAIN,
    Answer,
    Attribute,
    Place,
    is_special,
)
from symshape.user_code import is_library

_AS_THEY_ARE = (types.FunctionType, types.BuiltinFunctionType, type, *PLAIN)
_of_object = object.__getattribute__


def attributes_of(value: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object's own attributes, bypassing the look-ups of its class;
    None if it has none.
    """
    try:
        found = _of_object(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def matched(value: Any) -> list[str]:
    """Return the names of all attributes that a class pattern may read of an object of a Python
    class.
    """
    kind = type(value)
    if (
        isinstance(value, torch.Tensor)
        or trusted_code.is_of_c(kind)
        or trusted_code.is_machinery(kind.__module__)
    ):
        return []
    members = (each.__dict__.items() for each in kind.__mro__ if not trusted_code.is_of_c(each))
    found = {
        key: None
        for each in members
        for key, one in each
        if not key.startswith("__") and not _is_function(one)
    }
    return [*found, *(attributes_of(value) or ())]


def _is_function(value: Any) -> bool:
    return isinstance(value, (types.FunctionType, staticmethod, classmethod))


def static(kind: type, key: str) -> Any:
    """Return the value of a name in a class or its bases, without calling descriptors; ``MISSING``
    if there is none.
    """
    for each in kind.__mro__:
        if key in each.__dict__:
            return each.__dict__[key]
    return MISSING


def place_of(kind: type, key: str, found: Any, name: str) -> Place:
    """Return the place of a look-up in a class; a plain attribute if ``getattr`` returns the same
    value.
    """
    plain = isinstance(found, _AS_THEY_ARE) and type(kind).__getattribute__ is type.__getattribute__
    if plain and not hasattr(type(static(type(kind), key)), "__set__"):
        return Attribute(kind, key, found, name)
    return Answer(Lookup(kind, key), found, name, key)


class Lookup:
    """The question which value is stored under a name in a class or its bases."""

    __slots__ = ("key", "kind")

    def __init__(self, kind: type, key: str) -> None:
        self.kind, self.key = kind, key

    def __call__(self) -> Any:
        """Return the value that is stored there now."""
        return static(self.kind, self.key)


@functools.lru_cache(maxsize=1024)
def _slots_of(kind: type) -> tuple[str, ...]:
    return tuple(
        key
        for each in kind.__mro__
        if not trusted_code.is_of_c(each)
        for key, value in each.__dict__.items()
        if isinstance(value, types.MemberDescriptorType)
    )


def slots_of(kind: type) -> tuple[str, ...]:
    """Return the names of the slots that classes of Python code give to their objects."""
    return _slots_of(kind)


def functions_of(kind: type, everything: bool, tell: Callable[[Any, str], None]) -> None:
    """Call ``tell`` with the functions of a class: all of them, or those that Python calls
    implicitly.

    Of a library's class, the functions that make, show or pickle an object are assumed to stay, and
    left out.
    """
    wanted = _USED.__contains__ if is_of_library(kind) else is_special
    for key, value in list(kind.__dict__.items()):
        if (everything or wanted(key)) and isinstance(value, FUNCTIONS):
            tell(value, f"{kind.__qualname__}.{key}")


FUNCTIONS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
_BINARY = trusted_code.words(
    "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or"
)
_UNARY = trusted_code.words(
    "call getitem len iter next contains bool float int index getattr getattribute enter exit get "
    "set eq ne lt le gt ge hash neg pos abs invert round missing reversed"
)
_USED = frozenset(
    f"__{prefix}{name}__" for name in _BINARY for prefix in ("", "r", "i")
) | frozenset(f"__{name}__" for name in _UNARY)


@functools.lru_cache(maxsize=4096)
def _is_of_library(name: str) -> bool:
    return is_library(getattr(sys.modules.get(name), "__file__", None) or "")


def is_of_library(kind: type) -> bool:
    """Return whether a class is defined in an installed library."""
    return _is_of_library(kind.__module__)
