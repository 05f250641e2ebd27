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

from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.state.record import attribute_lookups
from symshape.tracing.state.record.recorder import TABLES, Recorder
from symshape.tracing.symbolic.tensors import SymbolicTensor


def is_alone() -> bool:
    """Return whether this is the only thread that runs Python code."""
    return len(sys._current_frames()) == 1


def attribute(recorder: Recorder, owner: Any, key: str) -> None:
    """Record that an attribute of an object, a class or a Python module is about to be set or
    deleted.
    """
    if isinstance(owner, type):
        forget(recorder)
        recorder.class_namespace(owner)
        recorder.stored.add((id(owner), key))
        return
    if type(owner) is SymbolicTensor:  # it refuses the write, or the program made it
        return
    recorder.told.pop((id(owner), key), None)
    recorder.stored.add((id(owner), key))
    attributes = attribute_lookups.attributes_of(owner)
    if attributes is None:
        return
    recorder.stored.add((id(attributes), key))
    if isinstance(owner, types.ModuleType):
        recorder.namespace(owner.__name__, attributes)
    elif isinstance(owner, torch.nn.Module):
        tables = (attributes.get(each) for each in TABLES)
        recorder.stored.update((id(each), key) for each in tables if each is not None)


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
