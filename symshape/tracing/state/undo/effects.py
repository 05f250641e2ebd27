"""Detection of writes to Python's state by a part of a program that may run never, once or several
times.

Each call repeats the writes of the program as a whole to the state outside.  Whether and how often
a part's writes must be repeated is unknown.  So a part may write nothing outside: neither to
objects that the recording has read, nor to objects that its function reaches.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from meta_fns.torch_internals import OperatorBase, OpOverloadPacket
from symshape.torch_internals.library import CustomOpDef
from symshape.tracing.state.record.places import MISSING, items_of
from symshape.tracing.state.record.reads import Namespace, entries_of
from symshape.tracing.state.record.recorder import Recorder
from symshape.tracing.state.undo.writes import holds_symbolic
from symshape.tracing.symbolic.tensors import SymbolicTensor, attributes_of

_CONTAINERS = (list, dict, set, deque, bytearray)
_OPERATORS = (OperatorBase, OpOverloadPacket, CustomOpDef)
"""The operator types of torch, which store their kernels at their first call (private names,
checked on 2.13).
"""
_MOST = 20_000  # objects that a function reaches


class Effects:
    """The current state of a recording, and of all objects that a function reaches, to compare with
    later.

    Args:
        recorder: the recording so far.
        function: the part of the program.
    """

    def __init__(self, recorder: Recorder, function: Callable[..., Any]) -> None:
        self._recorder = recorder
        self._namespaces = {
            id(each): entries_of(each.owner) for each in recorder.namespaces.values()
        }
        self._containers = {id(each): each.read() for each in recorder.containers}
        self._cells = {id(each): each.read() for each in recorder.cells}
        self._slots = {id(each): each.read() for each in recorder.slots.values()}
        self._stored = set(recorder.stored)
        self._reached = list(_reached(function))
        self._then = [_state(each) for each in self._reached]

    def since(self) -> Iterator[str]:
        """Yield the changes since then, in words."""
        recorder = self._recorder
        for namespace in list(recorder.namespaces.values()):
            yield from self._written(namespace)
        for container in recorder.containers:
            if not _same(self._containers.get(id(container), container.items), container.read()):
                yield f"changes {container.name}"
        for cell in recorder.cells:
            if self._cells.get(id(cell), cell.value) is not cell.read():
                yield f"changes the variable {cell.name} around it"
        for slot in recorder.slots.values():
            if self._slots.get(id(slot), slot.value) is not slot.read():
                yield f"changes {slot.name}"
        for each, then in zip(self._reached, self._then, strict=True):
            if not _same(then, _state(each)):
                yield f"changes a {type(each).__name__} around it"

    def _written(self, namespace: Namespace) -> Iterator[str]:
        before = self._namespaces.get(id(namespace), namespace.before)
        owner, where = entries_of(namespace.owner), namespace.kind or namespace.owner
        for key in {**before, **owner}:
            then, now = before.get(key, MISSING), owner.get(key, MISSING)
            stored = (id(where), key) in self._recorder.stored - self._stored
            if not stored and then is MISSING and _is_imported(owner, key, now):
                continue
            if stored or (then is not now and (namespace.own or holds_symbolic(now))):
                yield f"sets {namespace.name}.{key}" if namespace.name else f"sets {key} outside"


def _is_imported(package: Mapping[Any, Any], name: Any, value: Any) -> bool:
    """Return whether a value is the submodule of this name, which Python binds in its package at
    the first import.
    """
    return (
        isinstance(value, types.ModuleType)
        and sys.modules.get(f"{package.get('__name__')}.{name}") is value
    )


def _same(then: Any, now: Any) -> bool:
    return len(then) == len(now) and all(
        one is other or _equal(one, other) for one, other in zip(then, now, strict=True)
    )


def _equal(one: Any, other: Any) -> bool:
    """Return whether two objects are equal plain values; reading an array's content makes new
    objects each time.
    """
    return (
        type(one) is type(other)
        and type(one) in (int, float, bool, str, bytes, tuple)
        and one == other
    )


def _state(value: Any) -> tuple[Any, ...]:
    """Return the contents of an object."""
    if isinstance(value, types.CellType):
        return _contents(value)
    if type(value) is SymbolicTensor:
        return tuple(attributes_of(value))
    if isinstance(value, _CONTAINERS):
        return tuple(items_of(value))
    return tuple(items_of(vars(value)))


def _contents(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _reached(function: Callable[..., Any]) -> Iterator[Any]:
    """Yield the cells, containers and objects with attributes that a function's code reaches
    without a global name.
    """
    waiting: list[Any] = [function]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST:
        each = waiting.pop()
        if id(each) in seen or isinstance(
            each, (type, types.ModuleType, torch.dtype, str, bytes, int, float, *_OPERATORS)
        ):
            continue
        seen.add(id(each))
        if isinstance(each, types.FunctionType):
            waiting += [
                *(each.__closure__ or ()),
                *(each.__defaults__ or ()),
                *(each.__kwdefaults__ or {}).values(),
            ]
        elif isinstance(each, types.MethodType):
            waiting += [each.__func__, each.__self__]
        elif isinstance(each, functools.partial):
            waiting += [each.func, *each.args, *each.keywords.values()]
        elif isinstance(each, tuple):
            waiting += each
        elif type(each) is SymbolicTensor:
            yield each
        elif isinstance(each, (types.CellType, *_CONTAINERS)):
            yield each
            waiting += _state(each)
        elif not isinstance(each, torch.Tensor) and type(getattr(each, "__dict__", None)) is dict:
            yield each
            waiting += vars(each).values()
