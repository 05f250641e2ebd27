"""Keys of constants: two constants have equal keys only if no program can distinguish them.

``==`` does not say so: ``1 == True``, ``0.0 == -0.0``, ``Decimal("1.0") == Decimal("1.00")`` and
``range(0, 3, 2) == range(0, 4, 2)``. A frozen dataclass compares its fields so, and may leave some
out; a user's class may define ``==`` as it likes. A constant is therefore keyed by its class and
its parts, if the class is known to be nothing but its parts, and else by its identity.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import math
import pathlib
import sys
import types
import uuid
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import attrs
import torch

from symshape.torch_internals import pytree


class Nothing:
    """The class of ``NOTHING``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "nothing"


NOTHING = Nothing()
"""The value of a place that holds no value."""


class Nesting:
    """A nesting of arguments: the last leaf of each call whose arguments nest in this way; equal to
    nothing else.

    Attributes:
        variables: how many variables are read with them; their values are in the leaf before, as
            they are.
    """

    __slots__ = ("variables",)

    def __init__(self, variables: int = 0) -> None:
        self.variables = variables


PLAIN: frozenset[type] = frozenset(
    {
        *(bool, int, str, bytes, type(None), types.EllipsisType, Nothing),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    }
)
"""Classes whose equal values are interchangeable. A program may not ask whether two of them are one
object.
"""
_MOST_NESTED = 16


class IdentityKey:
    """A key that equals only keys of the same object; it keeps the object alive only if no weak
    reference is possible.

    >>> class Owner: ...
    >>> owner = Owner()
    >>> IdentityKey(owner) == IdentityKey(owner), IdentityKey(owner) == IdentityKey(Owner())
    (True, False)
    """

    __slots__ = ("_hash", "_reference")

    def __init__(self, value: Any) -> None:
        self._hash = id(value)
        try:
            self._reference: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            self._reference = lambda: value

    @property
    def value(self) -> Any:
        """The object; None when it is gone."""
        return self._reference()

    @property
    def is_weak(self) -> bool:
        """Return whether the key does not keep the object alive."""
        return type(self._reference) is weakref.ref

    def when_gone(self, call: Callable[[Any], object]) -> weakref.ref[Any] | None:
        """Return a weak reference that calls ``call`` when the object dies; None if there is no
        weak reference.
        """
        value = self.value
        return (
            weakref.ref(value, call)
            if value is not None and isinstance(self._reference, weakref.ref)
            else None
        )

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(other) is IdentityKey and self.value is not None and other.value is self.value

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        value = self.value
        return str(value) if isinstance(value, enum.Enum) else f"this {type(value).__name__}"


class EqualityKey:
    """A key of a container's context, made anew each time: equal for equal objects of one class."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is EqualityKey
            and type(other.value) is type(self.value)
            and bool(other.value == self.value)
        )

    def __hash__(self) -> int:
        return hash(type(self.value))


def digits(value: float) -> str:
    """Return a float's text, in which even a NaN shows its sign.

    >>> digits(0.1), digits(-0.0), digits(float("nan")), digits(-float("nan"))
    ('0.1', '-0.0', 'nan', '-nan')
    """
    return repr(value) if value == value or math.copysign(1.0, value) > 0 else "-nan"


def _items(value: Any) -> tuple[Any, ...]:
    return tuple(value)


def _pairs(value: Any) -> tuple[Any, ...]:
    return tuple(part for pair in value.items() for part in pair)


_PARTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    float: lambda v: (digits(v),),
    complex: lambda v: (v.real, v.imag),
    tuple: _items,
    list: _items,
    set: _items,  # in the order in which a program would meet them
    frozenset: _items,
    torch.Size: _items,
    bytearray: lambda v: (bytes(v),),
    dict: _pairs,
    collections.OrderedDict: _pairs,
    types.MappingProxyType: lambda v: (IdentityKey(v),),
    range: lambda v: (v.start, v.stop, v.step),
    slice: lambda v: (v.start, v.stop, v.step),
    decimal.Decimal: lambda v: tuple(v.as_tuple()),
    fractions.Fraction: lambda v: (v.numerator, v.denominator),
    datetime.date: lambda v: (v.toordinal(),),
    datetime.time: lambda v: (v.replace(tzinfo=None).isoformat(), v.fold, v.tzinfo),
    datetime.datetime: lambda v: (v.replace(tzinfo=None).isoformat(), v.fold, v.tzinfo),
    datetime.timedelta: lambda v: (v.days, v.seconds, v.microseconds),
    datetime.timezone: lambda v: v.__getinitargs__(),
    uuid.UUID: lambda v: (v.int, v.is_safe),
    pathlib.PurePosixPath: lambda v: (str(v),),
    pathlib.PureWindowsPath: lambda v: (str(v),),
    type(pathlib.Path()): lambda v: (str(v),),
}
"""The parts of a value, by class, for classes that are nothing but their parts."""


def constant_key(value: Any, unknown: Callable[[Any], Hashable] = IdentityKey) -> Hashable:
    """Return a key that two constants share only if no program can distinguish them.

    Args:
        value: a constant; it need not be hashable.
        unknown: makes the key of an object of a class that is not known to be nothing but its
            parts.

    >>> constant_key(1) == constant_key(True), constant_key(0.0) == constant_key(-0.0)
    (False, False)
    >>> constant_key((1, 2)) == constant_key((1, 2))
    True
    """
    return _alike(value, unknown, 0)


def _alike(value: Any, unknown: Callable[[Any], Hashable], depth: int) -> Hashable:
    kind = type(value)
    if kind in PLAIN:
        return (kind, value)
    parts = constant_parts(value) if depth < _MOST_NESTED else None
    if parts is None:
        return (
            IdentityKey(value)
            if isinstance(value, (type, types.FunctionType, enum.Enum))
            else unknown(value)
        )
    return (kind, *[_alike(part, unknown, depth + 1) for part in parts])


def constant_parts(value: Any) -> tuple[Any, ...] | None:
    """Return the parts of a value, in order; None if its class may be more than its parts."""
    kind = type(value)
    known = _PARTS.get(kind)
    if known is not None:
        return known(value)
    if kind.__module__ == "numpy" and isinstance(value, sys.modules["numpy"].generic):
        return str(value.dtype), value.tobytes()
    names = field_names(kind)
    if names is None or vars_beside(value, names):
        return None
    try:
        return tuple([part for name in names for part in (name, getattr(value, name))])
    except AttributeError:  # a field that was never set
        return None


def may_have_parts(kind: type) -> bool:
    """Return whether objects of a class without fields may be keyed by their parts."""
    return kind in PLAIN or kind in _PARTS or kind.__module__ == "numpy"


def field_names(kind: type) -> tuple[str, ...] | None:
    """Return the fields of a dataclass or attrs class, those that ``==`` leaves out too; None for
    other classes.
    """
    if issubclass(kind, (int, str, float, tuple, list, dict, torch.Tensor, torch.nn.Module)):
        return None
    if dataclasses.is_dataclass(kind):
        names = tuple(field.name for field in dataclasses.fields(kind))
    elif attrs.has(kind):
        names = tuple(field.name for field in attrs.fields(kind))
    else:
        return None
    if kind.__getattribute__ is not object.__getattribute__ or any(
        comes_first(kind, name) for name in names
    ):
        return None
    slots = [slot for each in kind.__mro__ for slot in _slots_of(each)]
    return names if set(slots) <= {*names, "__dict__", "__weakref__"} else None


def comes_first(kind: type, name: str) -> bool:
    """Return whether a class attribute takes precedence over the object's own, and is not its
    slot.
    """
    for each in kind.__mro__:
        if name in each.__dict__:
            return answers_first(each.__dict__[name], name)
    return False


def answers_first(found: Any, name: str) -> bool:
    """Return whether a class attribute found under ``name`` takes precedence over the object's, and
    is not its slot.
    """
    kind = type(found)
    if kind is types.MemberDescriptorType:
        return bool(found.__name__ != name)
    return hasattr(kind, "__set__") or hasattr(kind, "__delete__")


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def vars_beside(value: Any, names: tuple[str, ...]) -> bool:
    """Return whether an object has attributes of its own beside these names."""
    return not getattr(value, "__dict__", {}).keys() <= set(names)


def nesting_key(tree: pytree.TreeSpec) -> Hashable:
    """Return a key that two nestings share only if their containers and keys are
    interchangeable.
    """
    if tree.is_leaf():
        return None
    return (
        tree.type,
        context_key(tree.context),
        *[nesting_key(child) for child in tree.children()],
    )


def context_key(context: Any) -> Hashable:
    """Return a key that two pytree contexts share only if they are interchangeable."""
    return constant_key(context, _equal)


def _equal(value: Any) -> Hashable:
    """Return the key of a part of a context; for a tensor (a parameter as a dictionary key) its
    identity.
    """
    return IdentityKey(value) if isinstance(value, torch.Tensor) else EqualityKey(value)


def shared_containers(value: Any) -> tuple[int, ...]:
    """Return for each container in a nested value, outermost first, the number of the first that is
    the same object.

    Empty if no mutable container occurs twice.

    >>> a = []
    >>> shared_containers((a, [], a)), shared_containers(([], []))
    ((0, 1, 2, 1), ())
    """
    found: list[int] = []
    _number_containers(value, found, {}, [])
    return tuple(found) if any(number != i for i, number in enumerate(found)) else ()


def _number_containers(each: Any, found: list[int], first: dict[int, int], kept: list[Any]) -> None:
    """Append the numbers of the containers in a value; ``kept`` keeps the containers, so that their
    ids stay theirs.
    """
    # Not a closure that calls itself: that is a cycle, which would keep the arguments of a call
    # until a collection.
    kind = pytree._get_node_type(each)
    if kind not in pytree.SUPPORTED_NODES:
        return
    number = len(found)
    found.append(number if isinstance(each, tuple) else first.setdefault(id(each), number))
    kept.append(each)
    for child in pytree.SUPPORTED_NODES[kind].flatten_fn(each)[0]:
        _number_containers(child, found, first, kept)
