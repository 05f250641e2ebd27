"""Kinds of object arguments: by class, whether an object is flattened into its attributes or is a
constant.

An object is flattened only if it is nothing but its attributes. Caches of transformers' models
always are. Dataclasses, attrs classes and namespaces are flattened if they hold a tensor or have no
hash: a frozen configuration is a constant. Other objects of the user's are constants by identity,
as the ``self`` of a method is. They are flattened once a second object of their class arrives and
both hold data alone, or once a program writes to one that holds data alone.
"""

from __future__ import annotations

import abc
import dataclasses
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import torch

from symshape.calls.constant_keys import PLAIN, IdentityKey, answers_first
from symshape.errors import UnsupportedError
from symshape.torch_internals import pytree

_BASES = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin", "DummyLayer")
"""Names of classes in ``transformers.cache_utils``, in any version; those that a version lacks are
left out.
"""


class ReadOtherwise(UnsupportedError):
    """The program writes to an argument whose class is flattened from now on; the call is to be
    read again.
    """


class _Plain:
    """An object with nothing but a dictionary."""


_OF_OBJECT = ("__setattr__", "__getattribute__", "__delattr__")
_CACHE, _WRITTEN, _FIELDS, _OBJECT, _NONE = "cache", "written", "fields", "object", ""
_kinds: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
_DEEPEST = 3  # levels of a field at which a tensor is looked for
_MOST_INSIDE = 64  # items of a field that are looked at for a tensor


def may_be_record(kind: type) -> bool:
    """Return whether objects of a class may be flattened: they are nothing but their attributes."""
    found = _kind_of(kind)
    return found == _CACHE or (found in (_FIELDS, _WRITTEN) and kind not in pytree.SUPPORTED_NODES)


def never_flattened(kind: type) -> bool:
    """Return whether no object of a class is flattened, now or later."""
    return _kind_of(kind) == _NONE


def is_cache(kind: type) -> bool:
    """Return whether a class is one of transformers' caches, or of their layers."""
    return _kind_of(kind) == _CACHE


def is_always_record(kind: type) -> bool:
    """Return whether objects of a class are always flattened: caches, and classes that programs
    write to.
    """
    return _kind_of(kind) in (_CACHE, _WRITTEN)


def is_record(value: Any) -> bool:
    """Return whether an object is flattened: a cache or its layer, or an object that holds a tensor
    or has no hash.

    Other objects are constants, keyed by their parts or by identity. The first object of a user's
    class is such a constant. Once another object of the class arrives, those that hold a tensor are
    flattened. Once a program has written to one, all of them are.
    """
    kind = type(value)
    return may_be_record(kind) and (
        is_always_record(kind) or getattr(kind, "__hash__", None) is None or _holds_tensor(value)
    )


def _kind_of(kind: type) -> str:
    found = _kinds.get(kind)
    if found is None:
        found = _kinds[kind] = _CACHE if _is_of_transformers(kind) else _class_of(kind)
    # a method was put into the class
    elif found and kind is not types.SimpleNamespace and not _is_untouched(kind):
        found = _kinds[kind] = _NONE
    return found


def _is_untouched(kind: Any) -> bool:
    """Return whether attributes of the class's objects are still read and written in the ordinary
    way.
    """
    return (
        (kind.__setattr__ is _setting or _is_frozen(kind, "__setattr__"))
        and (kind.__delattr__ is _deleting or _is_frozen(kind, "__delattr__"))
        and kind.__getattribute__ is _getting
        and not hasattr(kind, "__del__")
    )


_setting, _deleting, _getting = object.__setattr__, object.__delattr__, object.__getattribute__


_first: weakref.WeakKeyDictionary[type, Callable[[], Any]] = weakref.WeakKeyDictionary()


def note_argument(value: Any) -> None:
    """Note an argument; from the second object of data alone on, its class is flattened."""
    kind = type(value)
    if _kind_of(kind) != _OBJECT or kind in pytree.SUPPORTED_NODES:
        return
    values = contents(value)[1]
    if not any(_holds_tensor(each, _DEEPEST - 1) for each in values) or not all(
        map(_is_data, values)
    ):
        return
    first = _first.get(kind)
    if getattr(kind, "__hash__", None) is None:
        _kinds[kind] = _FIELDS
    elif first is None:
        try:
            _first[kind] = weakref.ref(value)
        except TypeError:  # it has no place for one: it is known by its number
            _first[kind] = _number(value)
    else:
        known = first()
        # its own ``==`` is not asked
        if known is not value and not (type(known) is int and known == id(value)):
            _kinds[kind] = _FIELDS


def flatten_from_now_on(value: Any, *, result: bool = False) -> bool:
    """Flatten the class of an argument that a program writes to, or makes and returns, from now on.

    The same goes for the classes of the objects that it holds. All of them must hold nothing but
    data, and a ``result`` must hold a tensor. Return whether this is new for any class.
    """
    found = _Objects()
    if not found.hold(value) or (result and not found.tensor):
        return False
    _kinds.update(dict.fromkeys(found.kinds, _FIELDS if result else _WRITTEN))
    return bool(found.kinds)


class _Objects:
    """A walk over objects that hold nothing but data, and such objects.

    Attributes:
        kinds: their classes.
        tensor: whether there is a tensor in them.
    """

    def __init__(self) -> None:
        self.kinds: set[type] = set()
        self.tensor = False

    def hold(self, value: Any, depth: int = _DEEPEST + 2) -> bool:
        """Return whether a value is data, or holds nothing else."""
        kind = type(value)
        if isinstance(value, torch.Tensor):
            self.tensor = True
            return True
        if kind in PLAIN or kind in _NUMBERS:
            return True
        if kind not in (list, tuple, dict):
            if _kind_of(kind) == _OBJECT and kind not in pytree.SUPPORTED_NODES:
                self.kinds.add(kind)
            elif not may_be_record(kind):
                return False
            inside = contents(value)[1]
        else:
            inside = list(value.values()) if kind is dict else value
        return (
            bool(depth)
            and len(inside) <= _MOST_INSIDE
            and all(self.hold(each, depth - 1) for each in inside)
        )


_NUMBERS = (float, complex, torch.SymInt, torch.SymFloat, torch.SymBool, torch.Size)


def _number(value: Any) -> Callable[[], int]:
    number = id(value)
    return lambda: number


def _is_data(value: Any, depth: int = 3) -> bool:
    """Return whether a value is a tensor, a number, a text or the like, or a container of these."""
    if isinstance(value, torch.Tensor) or type(value) in PLAIN or type(value) in (float, complex):
        return True
    if not depth or type(value) not in (list, tuple, dict):
        return may_be_record(type(value))
    inside = list(value.values()) if type(value) is dict else value
    return len(inside) <= _MOST_INSIDE and all(_is_data(each, depth - 1) for each in inside)


def _holds_tensor(value: Any, depth: int = _DEEPEST) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if not depth:
        return False
    if type(value) in (list, tuple):
        return any(_holds_tensor(each, depth - 1) for each in value[:_MOST_INSIDE])
    if type(value) is dict:
        return len(value) <= _MOST_INSIDE and any(
            _holds_tensor(each, depth - 1) for each in value.values()
        )
    return may_be_record(type(value)) and any(
        _holds_tensor(each, depth - 1) for each in contents(value)[1]
    )


def _class_of(kind: type) -> str:
    """Return the kind of a class:

    ``_FIELDS`` if it declares fields, ``_OBJECT`` if it has plain attributes, else ``_NONE``.
    """
    if kind is types.SimpleNamespace:
        return _FIELDS
    if type(kind) not in (type, abc.ABCMeta) or kind.__module__.partition(".")[0] in _NOT_DATA:
        return _NONE
    bases = [each for each in kind.__mro__ if each is not object]
    if any(
        each.__flags__ & (_HEAP | _IMMUTABLE) != _HEAP or "__del__" in each.__dict__
        for each in bases
    ):
        return _NONE  # of C, or with an end
    if not _is_untouched(kind):
        return _NONE
    return _FIELDS if dataclasses.is_dataclass(kind) or attrs.has(kind) else _OBJECT


# classes of C are static, or else (from 3.10 on) they cannot be changed
_HEAP, _IMMUTABLE = (1 << 9, 1 << 8)
_NOT_DATA = frozenset({"torch", "symshape", "guards", "meta_fns", "transformers"})


def _is_frozen(kind: type, name: str) -> bool:
    """Return whether a method comes from a frozen dataclass or attrs class."""
    if name == "__getattribute__":
        return False
    method = getattr(kind, name)
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is not None and parameters.frozen:
        return getattr(getattr(method, "__code__", None), "co_filename", "") == "<string>"
    return getattr(method, "__module__", "") == "attr._make"


def slots_of(kind: type) -> tuple[str, ...]:
    """Return the names of the slots that objects of a class have, base classes first."""
    found = _slots.get(kind)
    if found is None:
        names = [name for each in reversed(kind.__mro__) for name in _own_slots(each)]
        found = _slots[kind] = tuple(names)
    return found


def _own_slots(kind: type) -> Iterator[str]:
    names = kind.__dict__.get("__slots__", ())
    for name in (names,) if isinstance(names, str) else names:
        if name not in ("__dict__", "__weakref__"):
            is_private = name.startswith("__") and not name.endswith("__")
            yield f"_{kind.__name__.lstrip('_')}{name}" if is_private else name


_slots: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()


BETWEEN = ("__getattr__",)
"""Methods that may compute attributes of flattened objects, beside ``METHODS``, which such objects
never have.
"""
METHODS = (*_OF_OBJECT, "__del__")
"""Methods that end flattening: a class that gets one of them later is not flattened any longer."""


def overrides(kind: type, names: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the class attributes that take precedence over these attributes of an object:
    properties and the like.

    Most classes have none. They may come and go after an object was first flattened, and are part
    of a call's structure.
    """
    found: list[Any] = []
    for each in kind.__mro__[:-1]:
        held = each.__dict__
        if held.keys().isdisjoint(names) and held.keys().isdisjoint(BETWEEN):
            continue
        for name in (*names, *BETWEEN):
            if name in held and (name in BETWEEN or answers_first(held[name], name)):
                found += [each, name, IdentityKey(held[name])]
    return tuple(found)


def _is_of_transformers(kind: type) -> bool:
    caches = sys.modules.get("transformers.cache_utils")
    bases = tuple(each for name in _BASES if isinstance(each := getattr(caches, name, None), type))
    if not bases or not issubclass(kind, bases) or kind.__basicsize__ != _Plain.__basicsize__:
        return False
    return all(getattr(kind, name) is getattr(object, name) for name in _OF_OBJECT)


def contents(record: Any) -> tuple[tuple[Any, ...], list[Any]]:
    """Return the names and values of an object's attributes, or of a dictionary's or a list's
    items.
    """
    kind = type(record)
    if kind is list:
        return tuple(range(len(record))), list(record)
    held: Mapping[Any, Any] = record if kind is dict else dictionary_of(record) or {}
    if kind is not dict and (slots := slots_of(kind)):
        filled = [name for name in slots if is_filled(record, name)]
        return (*filled, *held), [*(getattr(record, name) for name in filled), *held.values()]
    return tuple(held), list(held.values())


def dictionary_of(record: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object's attributes, without its ``__getattr__``; None if there
    are only slots.
    """
    return record.__dict__ if type(record).__dictoffset__ else None


def is_filled(record: Any, slot: str) -> bool:
    """Return whether a slot of an object is filled, without its ``__getattr__``."""
    try:
        _getting(record, slot)
    except AttributeError:
        return False
    return True
