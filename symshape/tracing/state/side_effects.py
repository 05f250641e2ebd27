"""What a function must not do while it is traced: leave tensors or changed state behind.

A graph repeats the tensor operations of a program and nothing else.  So a change of Python state would happen once,
while tracing, and never again; it is undone and refused.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from symshape.errors import UnsupportedError
from symshape.tracing.state.places import MISSING, PLAIN, Attribute, Cell, Container, Keys, same
from symshape.tracing.state.recorder import Namespace, Recorder
from symshape.tracing.state.stores import is_alone
from symshape.tracing.symbolic.tensors import SymbolicTensor

_SYMBOLIC = (SymbolicTensor, torch.SymInt, torch.SymFloat, torch.SymBool)
_ADVICE = "a traced function must return its results (or write into a buffer in place)"
_OF_PYTHON = frozenset({"__abstractmethods__", "_abc_impl", "__annotations__", "__builtins__", "__warningregistry__"})


def undo(recorder: Recorder) -> list[str]:
    """Puts back what a trace changed; answers what was wrong with it, in words."""
    problems: list[str] = []
    recorder.alone = recorder.alone and is_alone()
    for memo, misses in recorder.memos:  # it may hold symbolic tensors now, and who has them cannot be seen
        if memo.cache_info().misses != misses:
            memo.cache_clear()
    for namespace in recorder.namespaces.values():
        problems += _undo_namespace(recorder, namespace)
    for slot in recorder.slots.values():
        now = slot.read()
        if now is not slot.value and _is_own(recorder, slot.owner, slot.key, now):
            _put_slot_back(slot)
            problems.append(_problem(slot.name, slot.value, now))
    for place in recorder.places:
        problems += _undo_place(recorder, place)
    problems += _containers(recorder.containers)
    return problems


def _is_own(recorder: Recorder, owner: Any, key: Any, now: Any) -> bool:
    """Whether a difference is the program's: see ``stores``."""
    return recorder.alone or (id(owner), key) in recorder.stored or holds_symbolic(now)


def _undo_namespace(recorder: Recorder, namespace: Namespace) -> Iterator[str]:
    owner, before = namespace.owner, namespace.before
    if len(owner) == len(before) and all(map(_is, owner.values(), before.values())):
        return
    for key in sorted(before.keys() | owner.keys(), key=str):
        then, now = before.get(key, MISSING), owner.get(key, MISSING)
        if then is now or key in _OF_PYTHON or isinstance(now, types.ModuleType):
            continue
        if not namespace.own and not holds_symbolic(now):
            continue
        if not namespace.open and not _is_own(recorder, namespace.kind or owner, key, now):
            continue
        _put_back(namespace, key, then)
        name = f"{namespace.name}.{key}" if namespace.name else f"the global {key}"
        yield _problem(name, then, now)


def _is(one: Any, other: Any) -> bool:
    return one is other


def _put_back(namespace: Namespace, key: Any, then: Any) -> None:
    """Gives an entry its old value; the attributes of a class are set on the class."""
    owner = namespace.owner
    if isinstance(owner, types.MappingProxyType):
        if then is MISSING:
            type.__delattr__(namespace.kind, key)
        else:
            type.__setattr__(namespace.kind, key, then)
    elif then is MISSING:
        owner.pop(key, None)
    else:
        owner[key] = then


def _put_slot_back(slot: Attribute) -> None:
    if slot.value is MISSING:
        object.__delattr__(slot.owner, slot.key)
    else:
        object.__setattr__(slot.owner, slot.key, slot.value)


def _undo_place(recorder: Recorder, place: Any) -> Iterator[str]:
    """Variables of closures, and attributes that stand in no dictionary; what another thread changed."""
    if isinstance(place, Cell) and isinstance(place.owner, types.CellType):
        now = place.read()
        if now is not place.value:
            place.owner.cell_contents = place.value
            yield _problem(f"the variable {place.name} around it", place.value, now)
    elif isinstance(place, Keys) or (recorder.alone and isinstance(place, Cell)):
        return
    elif not same(now := place.read(), place.value):
        namespace = recorder.namespaces.get(id(place.owner))
        if recorder.alone:
            yield _problem(place.name, place.value, now)
        elif namespace is None or namespace.own:
            yield f"reads {place.name}, which another thread changed meanwhile; it is traced at a later call"


def _containers(containers: Iterable[Container]) -> Iterator[str]:
    for container in containers:
        now = container.read()
        if len(now) == len(container.items) and all(map(_same_item, now, container.items)):
            continue
        container.put_back()
        if holds_symbolic(now):
            yield f"stores a tensor or a size in {container.name}; {_ADVICE}"
        else:
            then_text, now_text = (", ".join(map(_text, items)) for items in (container.items, now))
            yield _changes(container.name, f"{then_text[:60]}", f"{now_text[:60]}")


def _same_item(now: Any, then: Any) -> bool:
    return now is then or same(now, then) or (type(now) is tuple and now == then)


def _problem(where: str, then: Any, now: Any) -> str:
    """What is wrong with a place that held one value before the trace and holds another now."""
    if holds_symbolic(now):
        return f"stores a tensor or a size in {where}; {_ADVICE}"
    return _changes(where, _text(then), _text(now))


def _text(value: Any) -> str:
    if value is MISSING:
        return "not there"
    return repr(value) if isinstance(value, PLAIN) else f"a {type(value).__name__}"


def _changes(where: str, then: str, now: str) -> str:
    return (
        f"changes {where} (from {then} to {now}), which a graph would not do again; "
        "keep it out of the function, or make it a buffer and write into it in place"
    )


def undo_gradients(tensors: Iterable[torch.Tensor]) -> list[str]:
    """Takes away gradients that ``backward()`` left on tensors while tracing; answers what was wrong, in words."""
    problems: list[str] = []
    for tensor in tensors:
        if tensor.is_leaf and tensor.requires_grad and type(tensor.grad) is SymbolicTensor:
            tensor.grad = None
            problems = ["calls backward(), which leaves gradients behind; return torch.autograd.grad(...) instead"]
    return problems


def refuse(problems: list[str], name: str) -> None:
    """Raises the first problem, if there is one.

    Raises:
        UnsupportedError: naming the function and what it does.
    """
    if problems:
        raise UnsupportedError(f"{name} {problems[0]}")


def holds_symbolic(value: Any) -> bool:
    """Whether a symbolic tensor or size is in a value, however nested."""
    if isinstance(value, _SYMBOLIC):
        return True
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(holds_symbolic(item) for item in value)
    return isinstance(value, Mapping) and any(holds_symbolic(item) for item in value.values())
