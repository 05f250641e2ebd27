"""Record the program's writes at the storing instruction, to distinguish them from writes of other
threads.

A trace compares dictionaries of attributes and globals as wholes, before and after.  If no other
thread runs, every difference is the program's.  Otherwise a difference is the program's in three
cases: its code stored under that name, trusted code may have done so (``Namespace.open``), or the
new value is symbolic.  Any other difference is ignored.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

from symshape.errors import Problem, Reason
from symshape.tracing.state.compare import torch_functions
from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.state.record.class_lookups import attributes_of
from symshape.tracing.state.record.recorder import TABLES, Recorder
from symshape.tracing.symbolic.tensors import SymbolicTensor

_OF_FUNCTIONS = frozenset(
    trusted_code.words(
        "__code__ __defaults__ __kwdefaults__ __dict__ __class__ __name__ __qualname__ __module__ "
        "__doc__ __annotations__ __type_params__"
    )
)
_OF_CLASSES = frozenset(("__bases__", "__class__", "__name__", "__qualname__"))
_OF_OBJECTS = frozenset(("__dict__", "__class__"))
"""The attributes that Python itself keeps outside of dictionaries, and that code can set: no call
repeats such a write.

(Attributes in slots are different: calls set those again.)
"""
OUTSIDE_OF_DICTIONARIES = (_OF_FUNCTIONS | _OF_CLASSES) - {"__code__"}
"""All of them except the code of functions, which the recording itself replaces."""


def is_alone() -> bool:
    """Return whether this is the only thread that runs Python code."""
    return len(sys._current_frames()) == 1


def attribute(recorder: Recorder, owner: Any, key: str) -> None:
    """Record that an attribute of an object, a class or a Python module is about to be set or
    deleted.
    """
    _refuse_unrepeated(recorder, owner, key)
    if isinstance(owner, type):
        forget(recorder)
        recorder.class_namespace(owner)
        recorder.stored.add((id(owner), key))
        return
    if type(owner) is SymbolicTensor:  # it refuses the write, or the program made it
        return
    recorder.told.pop((id(owner), key), None)
    recorder.stored.add((id(owner), key))
    attributes = attributes_of(owner)
    if attributes is None:
        return
    recorder.stored.add((id(attributes), key))
    if isinstance(owner, types.ModuleType):
        recorder.namespace(owner.__name__, attributes)
    elif isinstance(owner, torch.nn.Module):
        tables = (attributes.get(each) for each in TABLES)
        recorder.stored.update((id(each), key) for each in tables if each is not None)


def _refuse_unrepeated(recorder: Recorder, owner: Any, key: str) -> None:
    """Refuse a write that no call can repeat, before it happens, unless the program itself made the
    owner.
    """
    kind = type(owner)
    if (replaces := torch_functions.of_write(owner, key)) is not None:
        recorder.refuse(replaces.text, replaces.reason)
    if kind is types.FunctionType:
        unrepeated = key in _OF_FUNCTIONS and (key == "__code__" or id(owner) in recorder.known)
    elif isinstance(owner, types.ModuleType):
        unrepeated = key == "__class__"
    else:
        unrepeated = (
            key in (_OF_CLASSES if isinstance(owner, type) else _OF_OBJECTS)
            and id(owner) in recorder.known
        )
    if unrepeated:
        problem = not_repeated(owner, key)
        recorder.refuse(problem.text, problem.reason)


def not_repeated(owner: Any, key: str) -> Problem:
    """Return the problem with a write to an attribute that Python keeps outside of dictionaries."""
    name = (
        getattr(owner, "__qualname__", None)
        or getattr(owner, "__name__", None)
        or f"a {type(owner).__name__}"
    )
    text = (
        f"sets {key} of {name}, which a compiled graph would not repeat; do that outside the "
        "function"
    )
    return Problem(text, Reason.STATE)


def cells_of(recorder: Recorder, function: types.FunctionType) -> None:
    """Record the variables in the closure of a function that existed before the trace: they can be
    set through it.
    """
    if id(function) in recorder.known:
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=False
        ):
            recorder.cell(cell, name)


def forget(recorder: Recorder) -> None:
    """Forget which loads need no further record, before a write to a class or a write that is not
    reported.
    """
    recorder.told.clear()
    recorder.members.clear()
    recorder.supers.clear()


def entry(recorder: Recorder, namespace: dict[str, Any], key: str) -> None:
    """Record that a global name is about to be set or deleted."""
    recorder.namespace("", namespace)
    recorder.stored.add((id(namespace), key))


def exchanged(recorder: Recorder, module: torch.nn.Module) -> None:
    """Record that ``functional_call`` is about to replace a module's parameters and buffers, and to
    restore them.
    """
    by_module_method(recorder, module, "functional_call")
    for each in module.modules():
        tables = (each.__dict__.get(name) for name in TABLES)
        recorder.stored.update(
            (id(table), key) for table in tables if table is not None for key in table
        )


def by_module_method(recorder: Recorder, module: torch.nn.Module, key: str) -> None:
    """Record the call of a method of ``nn.Module`` that may set any attribute of the module and its
    submodules.
    """
    if key in trusted_code.READING_METHODS or id(module) not in recorder.known:
        return
    forget(recorder)
    for path, each in list(module.named_modules()):
        recorder.touch(each, path)
        tables = (each.__dict__.get(name) for name in TABLES)
        for attributes in (each.__dict__, *(table for table in tables if table is not None)):
            recorder.namespace(path, attributes).open = True
        recorder.entry(
            each.__dict__, "training", f"{path}.training", recorder.namespace(path, each.__dict__)
        )
