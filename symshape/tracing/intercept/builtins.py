"""While a function is traced, its own code takes symbolic numbers for plain ones: ``isinstance(n, int)`` is true.

A size of a traced tensor, or an integer argument, is a ``torch.SymInt``, which is no ``int`` to Python.  A program that
asks would take another branch than in eager.  So the names ``isinstance`` and ``type`` in traced code mean functions of
ours for the time of the trace, as do ``len``, for which Python takes nothing but a plain number, ``divmod``, ``max``,
``min`` and ``print``; code that is not recorded (see ``state/trusted``) keeps Python's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import GenericAlias
from typing import Any

import torch

from symshape.errors import UnsupportedError
from symshape.tracing.intercept.number_methods import is_of_data, is_ours
from symshape.tracing.symbolic.nodes.texts import plain_print
from symshape.tracing.symbolic.tensors import SymbolicTensor, outward

_STANDS_FOR: dict[type, Any] = {torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True}
_isinstance = isinstance
_stand_ins: Collection[int] = ()
"""The ids of objects that stand for arguments of the trace."""
_HASHING = (dict.__contains__, set.__contains__, frozenset.__contains__)
_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat)
_MOST_COMPARED = 64  # each may leave a guard


def plain_isinstance(value: object, kinds: Any) -> bool:
    """``isinstance``, for which a symbolic number is also the number that it stands for.

    >>> plain_isinstance(3, int), plain_isinstance("3", (int, float))
    (True, False)
    """
    if _isinstance(value, kinds):
        return True
    stands_for = _STANDS_FOR.get(type(value))
    return stands_for is not None and _isinstance(stands_for, kinds)


class _Kind(type):
    """So that ``PlainType(n)`` is a call of ours, and ``isinstance(x, PlainType)`` asks for a class."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        found = type(*args, **kwargs)
        if len(args) != 1:
            return found
        return args[0]._kind if found is SymbolicTensor else type(_STANDS_FOR[found]) if found in _STANDS_FOR else found

    def __instancecheck__(cls, instance: Any) -> bool:
        return _isinstance(instance, type)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        return issubclass(subclass, type)


class PlainType(type, metaclass=_Kind):
    """``type``, for which a symbolic number or tensor is of the type of what it stands for.

    >>> PlainType(3) is int, isinstance(int, PlainType)
    (True, True)
    """

    __class_getitem__: Any = classmethod(GenericAlias)


def plain_len(value: Any) -> Any:
    """``len``, for which the length of a traced tensor may be symbolic.

    >>> plain_len([1, 2])
    2
    """
    if type(value) is SymbolicTensor and value._spec.sizes:
        return outward(value._spec.sizes[0])
    return len(value)


def plain_numel(size: Sequence[Any]) -> Any:
    """``torch.Size.numel``, which C computes with plain numbers only.

    >>> plain_numel(torch.Size([2, 3]))
    6
    """
    return math.prod(size)


def plain_divmod(a: Any, b: Any) -> Any:
    """``divmod``, of which one operand may be symbolic.

    >>> plain_divmod(7, 3)
    (2, 1)
    """
    return (a // b, a % b) if {type(a), type(b)} & {torch.SymInt, torch.SymFloat} else divmod(a, b)


def _chosen(name: str, choose: Callable[..., Any]) -> Callable[..., Any]:
    """``max`` or ``min``, for which floats that only data tell are a formula: which one it is need not be known."""

    def compute(*args: Any, **kwargs: Any) -> Any:
        kinds = {type(each) for each in args}
        if len(args) < 2 or kwargs or torch.SymFloat not in kinds or not kinds <= {float, torch.SymFloat}:
            return choose(*args, **kwargs)
        ours = next((each.node for each in args if type(each) is torch.SymFloat and is_of_data(each)), None)
        if ours is None:
            return choose(*args)
        found, *others = (each.node if type(each) is torch.SymFloat else ours.wrap_float(each) for each in args)
        for each in others:  # in Python's order: of two equal ones, and where one is not a number, the first stays
            found = getattr(found, f"sym_{name}")(each)
        return torch.SymFloat(found)

    return compute


def contains(container: Any, item: Any) -> bool:
    """``item in container``: a symbolic integer is compared with the keys, not hashed, which would fix it.

    >>> contains({7, 8}, 7)
    True
    """
    hashes = type(item) is torch.SymInt and getattr(type(container), "__contains__", None) in _HASHING
    if not hashes or len(container) > _MOST_COMPARED:
        return item in container
    return any(isinstance(each, _NUMBERS) and each == item for each in container)


def plain_id(value: Any) -> int:
    """``id``, which is refused for the stand-in of an argument: it differs from call to call.

    >>> plain_id(None) == id(None)
    True
    """
    what = "a tensor" if type(value) is SymbolicTensor and value._value in value._tracer.originals else ""
    if what or id(value) in _stand_ins:
        raise UnsupportedError(
            f"the function asks for the id() of {what or 'an object'} that it is given, which differs from call to "
            "call; use a name or a number of your own to know it by"
        )
    return id(value)


def _of_symbols(function: Callable[..., float]) -> Callable[..., Any]:
    name = function.__name__ if function is math.pow else f"sym_{function.__name__}"

    def compute(*args: Any) -> Any:
        numbers = [each for each in args if type(each) in (torch.SymInt, torch.SymFloat) and is_ours(each)]
        if not numbers or len(args) != (2 if function is math.pow else 1):
            return function(*args)
        wrap = numbers[0].node.wrap_float
        nodes = [
            torch.sym_float(each).node if any(each is one for one in numbers) else wrap(float(each)) for each in args
        ]
        return torch.SymFloat(getattr(nodes[0], name)(*nodes[1:]))

    return compute


MATH = {
    id(each): _of_symbols(each) for each in (math.sqrt, math.sin, math.cos, math.exp, math.log, math.log2, math.pow)
}
"""By ``id``, functions of ``math`` that C computes with plain numbers only: of symbolic ones they are formulas."""

REPLACED = {
    "id": plain_id,
    "isinstance": plain_isinstance,
    "type": PlainType,
    "len": plain_len,
    "divmod": plain_divmod,
    "max": _chosen("max", max),
    "min": _chosen("min", min),
    "print": plain_print,
}
"""Names of Python's that mean something of ours in traced code."""


@contextmanager
def ids_of_stand_ins_refused(objects: Collection[int]) -> Iterator[None]:
    """Inside, torch's dictionaries that know tensors by their ids refuse the stand-ins of arguments.

    Args:
        objects: the ids of stand-ins for objects.
    """
    global _stand_ins
    outer, _stand_ins = _stand_ins, objects
    namespace = vars(torch.utils.weak)
    before = namespace.get("id")
    namespace["id"] = plain_id
    try:
        yield
    finally:
        _stand_ins = outer
        if before is None:
            del namespace["id"]
        else:
            namespace["id"] = before
