"""Record all that an object holds, before trusted code reads it past every look-up (``copy.copy``,
``copy.deepcopy``, ``pickle.dumps`` …).
"""

from __future__ import annotations

import copyreg
import enum
import functools
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from symshape.errors import Reason
from symshape.tracing.restart import Restart, after
from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.state.record import torch_flags
from symshape.tracing.state.record.class_lookups import (
    FUNCTIONS,
    attributes_of,
    look_up,
    slots_of,
    static,
)
from symshape.tracing.state.record.loads import load_attr, read_slot, touch_class_whole
from symshape.tracing.state.record.places import MISSING, PLAIN, Cell, items_of
from symshape.tracing.state.record.reads import SYMBOLIC
from symshape.tracing.state.record.recorder import Recorder

_MOST_OBJECTS = 10_000
"""Objects that one copy may reach: recording takes some 5 µs for each of them."""
_METHODS = trusted_code.words(
    "__copy__ __deepcopy__ __reduce__ __reduce_ex__ __getstate__ __setstate__ __getnewargs__ "
    "__getnewargs_ex__"
)
"""The methods by which an object decides how it is copied or pickled."""
_PLAIN_REDUCTION = (object.__dict__["__reduce_ex__"], object.__dict__["__reduce__"])
_without_names: weakref.WeakSet[type] = weakref.WeakSet()
"""The classes that refuse the attribute in which Python stores the names of their slots."""
_slot_names: Callable[[type], Any] = copyreg._slotnames  # type: ignore[attr-defined]
_CONTAINERS = (list, dict, set, frozenset, tuple, deque)
_CLOSED: tuple[Any, ...] = (
    *(*PLAIN, *SYMBOLIC, type, enum.Enum, bytearray, *FUNCTIONS),
    *(types.ModuleType, types.BuiltinFunctionType, types.CodeType, weakref.ref, range),
)
"""The types of values that a copy does not look into."""


def touch_whole(
    recorder: Recorder, value: Any, name: str, *, deep: bool, copies: bool = True
) -> None:
    """Record all attributes, slots and items of an object; if ``deep``, also those of the objects
    that it holds.

    Args:
        recorder: the recording.
        value: the object.
        name: its name, for people.
        deep: whether the objects in it are read as well.
        copies: whether the object is copied or pickled.

    Raises:
        UnsupportedError: it holds too many objects, or one that no recording can see into.
        Restart: its class is copied for the first time, which sets an attribute of the class.
    """
    pending, seen = [(value, name)], set[int]()
    while pending:
        each, label = pending.pop()
        if id(each) in seen or issubclass(type(each), _CLOSED):
            continue
        seen.add(id(each))
        if len(seen) > _MOST_OBJECTS:
            text = (
                f"copies or pickles {name or 'an object'}, which holds more than {_MOST_OBJECTS:,} "
                "objects; copy it outside the function"
            )
            recorder.refuse(text, Reason.UNCOMPARED)
        if copies:
            _prepare(type(each))
        _itself(recorder, each, label)
        if deep:
            pending += [(item, f"{label}.{key}") for key, item in _parts(each)]


def _prepare(kind: type) -> None:
    """Let Python store the names of a class's slots in the class, which its first copy does,
    outside of the trace.
    """
    if trusted_code.is_of_c(kind) or "__slotnames__" in kind.__dict__ or kind in _without_names:
        return
    plain = (static(kind, "__reduce_ex__"), static(kind, "__reduce__")) == _PLAIN_REDUCTION
    if plain and static(kind, "__deepcopy__") is MISSING and static(kind, "__copy__") is MISSING:
        text = f"copies a {kind.__name__} for the first time; copy one before it is traced"
        prepare = functools.partial(_store_slot_names, kind)
        raise Restart(text, after(prepare), Reason.MEMO, prepares=True)


def _store_slot_names(kind: type) -> None:
    _slot_names(kind)
    if "__slotnames__" not in kind.__dict__:
        _without_names.add(kind)


def _itself(recorder: Recorder, value: Any, name: str) -> None:
    kind = type(value)
    if not trusted_code.is_of_c(kind) and not issubclass(type(value), torch.Tensor):
        for key in _METHODS:
            if issubclass(type(static(kind, key)), FUNCTIONS):
                look_up(recorder, kind, key, kind.__qualname__)
    reduced = copyreg.dispatch_table.get(kind, MISSING)
    recorder.ask((torch_flags.copied_classes.__name__,))
    if reduced is not MISSING:
        recorder.place(Cell(copyreg.dispatch_table, kind, reduced, f"how a {kind.__name__} copies"))
        recorder.touch(reduced, name)
    # made while tracing: its contents were loaded, or made, as well
    if id(value) not in recorder.known:
        return
    for key in slots_of(kind):
        read_slot(recorder, value, key, f"{name}.{key}")
    attributes = attributes_of(value)
    if attributes is not None:
        recorder.touch(attributes, recorder.names.get(id(value), name), True)
    if issubclass(type(value), torch.nn.Module):
        for table in (attributes or {}).values():
            if type(table) in (dict, torch.nn.Module):
                recorder.touch(table, name, True)


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what an object holds, with a name for each."""
    kind = type(value)
    if issubclass(type(value), _CONTAINERS):
        yield from enumerate(items_of(value))
    elif issubclass(type(value), types.MappingProxyType):
        yield from value.items()
    elif issubclass(type(value), functools.partial):
        yield from (("args", value.args), ("keywords", value.keywords))
    elif issubclass(type(value), types.MethodType):
        yield "__self__", value.__self__
    for key in slots_of(kind):
        yield key, getattr(value, key, None)
    yield from (attributes_of(value) or {}).items()


# -- Classes
def touch_members(recorder: Recorder, owner: Any, name: str) -> None:
    """Record all that ``inspect.getmembers`` reads: the attributes of an object or class, and those
    of its classes.
    """
    kind = owner if issubclass(type(owner), type) else type(owner)
    if not issubclass(type(owner), type):
        touch_whole(recorder, owner, name, deep=False, copies=False)
    for each in kind.__mro__:
        load_attr(recorder, each, "__mro__")
        touch_class_whole(recorder, each, each.__qualname__)
