"""What a function must not do while it is traced: leave tensors or changed attributes behind.

A graph repeats the tensor operations of a program and nothing else.  So a change of Python state would happen once,
while tracing, and never again; it is undone and refused.  Lists and sets that got further plain values, and that the
program does not read (a log), keep them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import torch

from symshape.errors import UnsupportedError
from symshape.tracing.state.reachable import MISSING, PLAIN, Container, only_appends
from symshape.tracing.state.snapshot import State, same
from symshape.tracing.symbolic.tensors import SymbolicTensor

_SYMBOLIC = (SymbolicTensor, torch.SymInt, torch.SymFloat, torch.SymBool)
_ADVICE = "a traced function must return its results (or write into a buffer in place)"


@attrs.frozen(eq=False)
class _Namespace:
    """A dictionary of attributes or globals as it was before the trace."""

    name: str
    owner: dict[str, Any]
    before: dict[str, Any]
    whole: bool  # whether all of its keys count, or only those in ``before``
    own: bool = True  # whether plain values count: what a library's object (a logger, an event) notes is its own affair

    def changes(self) -> list[tuple[str, Any, Any]]:
        """Keys with their values before and now."""
        keys = self.before.keys() | self.owner.keys() if self.whole else self.before.keys()
        both = [(key, self.before.get(key, MISSING), self.owner.get(key, MISSING)) for key in sorted(keys)]
        return [each for each in both if each[1] is not each[2]]

    def put_back(self, key: str) -> None:
        """Gives a key its old value."""
        if self.before.get(key, MISSING) is MISSING:
            self.owner.pop(key, None)
        else:
            self.owner[key] = self.before[key]


class SideEffects:
    """Watches the state that a function can reach from before its trace to after it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._all_containers = list(state.containers)
        self._namespaces: list[_Namespace] = []
        self._memos = [
            (each, each.cache_info().misses) for each in state.named if isinstance(each, functools._lru_cache_wrapper)
        ]
        for name, module in state.modules.values():
            self._watch(name or type(module).__name__, module.__dict__)
            for table in (module._parameters, module._buffers, module._modules):
                self._watch(name or type(module).__name__, table)
        for name, attributes, own in state.namespaces:
            self._watch(name, attributes, own)
        self._globals = [
            _Namespace("", owner, {name: owner.get(name, MISSING) for name in names}, whole=False)
            for owner, names in state.globals
        ]

    def _watch(self, name: str, owner: dict[str, Any], own: bool = True) -> None:
        self._namespaces.append(_Namespace(name, owner, dict(owner), whole=True, own=own))

    def undo(self) -> list[str]:
        """Puts back what the trace changed; answers what was wrong with it, in words."""
        problems: list[str] = []
        for memo, misses in self._memos:  # it may hold symbolic tensors now, and who has them cannot be seen
            if memo.cache_info().misses != misses:
                memo.cache_clear()
        for namespace in self._namespaces:
            for key, then, now in namespace.changes():
                leaked = holds_symbolic(now)
                if not leaked and not namespace.own:
                    continue
                namespace.put_back(key)
                problem = _problem(f"{namespace.name}.{key}", then, now)
                if problem:
                    problems.append(problem)
        for namespace in self._globals:
            for key, then, now in namespace.changes():
                problem = _problem(f"the global {key}", then, now)
                if problem:
                    namespace.put_back(key)
                    problems.append(problem)
        for cell in self._state.closure:
            problem = _problem(f"the variable {cell.name} around it", cell.value, cell.read())
            if problem:
                cell.owner.cell_contents = cell.value
                problems.append(problem)
        return problems + self._containers()

    def put_back(self) -> None:
        """Puts back everything, logs too: the trace is given up, and its function will run again."""
        for namespace in (*self._namespaces, *self._globals):
            for key, _, now in namespace.changes():
                if namespace.own or holds_symbolic(now):
                    namespace.put_back(key)
        for cell in self._state.closure:
            if cell.read() is not cell.value:
                cell.owner.cell_contents = cell.value
        for container in self._all_containers:
            if not _as_it_was(container):
                container.put_back()

    def _containers(self) -> list[str]:
        changed: list[Container] = []
        problems: list[str] = []
        for container in self._state.containers:
            if _as_it_was(container):
                continue
            now = container.read()
            changed.append(container)
            if holds_symbolic(now):
                container.put_back()
                problems.append(f"stores a tensor or a size in {container.name}; {_ADVICE}")
            elif not _only_grew(container, now) or not only_appends(self._state.codes, container.name.split(".")[-1]):
                then_text, now_text = (", ".join(map(repr, items)) for items in (container.items, now))
                container.put_back()
                problems.append(_changes(container.name, f"{then_text[:60]}", f"{now_text[:60]}"))
        self._state.forget_containers(changed)
        return problems


def _problem(where: str, then: Any, now: Any) -> str:
    """What is wrong with a place that held one value before the trace and holds another now; nothing if empty."""
    if holds_symbolic(now):
        return f"stores a tensor or a size in {where}; {_ADVICE}"
    if isinstance(now, PLAIN) and not same(now, then):
        return _changes(where, "not there" if then is MISSING else repr(then), repr(now))
    return ""


def _changes(where: str, then: str, now: str) -> str:
    return (
        f"changes {where} (from {then} to {now}), which a graph would not do again; "
        "keep it out of the function, or make it a buffer and write into it in place"
    )


def _as_it_was(container: Container) -> bool:
    """Whether a container holds the very items that it held."""
    now, then = container.read(), container.items
    return len(now) == len(then) and all(a is b for a, b in zip(now, then, strict=True))


def _only_grew(container: Container, now: tuple[Any, ...]) -> bool:
    """Whether a container holds all that it held, and more: a log, and not a counter."""
    then = container.items
    if isinstance(container.owner, set):
        return {*map(id, then)} <= {*map(id, now)}
    return len(now) >= len(then) and all(map(same, now[: len(then)], then))


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
