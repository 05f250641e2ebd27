"""What a program stores: noted where its code does, so that what another thread writes meanwhile is not taken for it.

A trace compares dictionaries of attributes and globals as wholes, before and after.  Where no other thread runs, every
difference is the program's.  Else a difference is the program's if its code stored under that name, if trusted code may
have (``Namespace.open``), or if it is a symbolic value; any other is left as it is.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

from symshape.tracing.state import lookups, trusted
from symshape.tracing.state.recorder import TABLES, Recorder
from symshape.tracing.symbolic.tensors import SymbolicTensor


def is_alone() -> bool:
    """Whether this is the only thread that runs code of Python's."""
    return len(sys._current_frames()) == 1


def attribute(recorder: Recorder, owner: Any, key: str) -> None:
    """An attribute of an object, a class or a module of Python's is about to be set or deleted."""
    if isinstance(owner, type):
        forget(recorder)
        recorder.class_namespace(owner)
        recorder.stored.add((id(owner), key))
        return
    if type(owner) is SymbolicTensor:  # it refuses, or it is the program's own
        return
    recorder.told.pop((id(owner), key), None)
    recorder.stored.add((id(owner), key))
    attributes = lookups.attributes_of(owner)
    if attributes is None:
        return
    recorder.stored.add((id(attributes), key))
    if isinstance(owner, types.ModuleType):
        recorder.namespace(owner.__name__, attributes)
    elif isinstance(owner, torch.nn.Module):
        tables = (attributes.get(each) for each in TABLES)
        recorder.stored.update((id(each), key) for each in tables if each is not None)


def forget(recorder: Recorder) -> None:
    """A class, or what nobody tells of, is about to be written: every load is looked at again."""
    recorder.told.clear()
    recorder.members.clear()
    recorder.supers.clear()


def entry(recorder: Recorder, namespace: dict[str, Any], key: str) -> None:
    """A global name is about to be set or deleted."""
    recorder.namespace("", namespace)
    recorder.stored.add((id(namespace), key))


def exchanged(recorder: Recorder, module: torch.nn.Module) -> None:
    """Torch is about to exchange what the tables of a module and its parts hold, and to put it back."""
    by_module_method(recorder, module, "functional_call")
    for each in module.modules():
        tables = (each.__dict__.get(name) for name in TABLES)
        recorder.stored.update((id(table), key) for table in tables if table is not None for key in table)


def by_module_method(recorder: Recorder, module: torch.nn.Module, key: str) -> None:
    """A method of ``nn.Module``'s own is about to be called, which may set any attribute of any module inside."""
    if key in trusted.READING_METHODS or id(module) not in recorder.known:
        return
    forget(recorder)
    for path, each in list(module.named_modules()):
        recorder.touch(each, path)
        tables = (each.__dict__.get(name) for name in TABLES)
        for attributes in (each.__dict__, *(table for table in tables if table is not None)):
            recorder.namespace(path, attributes).open = True
        recorder.entry(each.__dict__, "training", f"{path}.training", recorder.namespace(path, each.__dict__))
