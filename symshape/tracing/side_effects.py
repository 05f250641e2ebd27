"""What a function must not do while it is traced: leave tensors or changed attributes behind.

A graph repeats the tensor operations of a program and nothing else.  So a change of Python state would happen once,
while tracing, and never again; it is undone and refused.  Lists, dictionaries and sets that got plain values (a log)
keep them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import torch

from symshape.errors import UnsupportedError
from symshape.tracing.reachable import MISSING, PLAIN, Container
from symshape.tracing.state import State, same
from symshape.tracing.tensors import SymbolicTensor

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
        self._namespaces: list[_Namespace] = []
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
        for namespace in self._namespaces:
            for key, then, now in namespace.changes():
                leaked = holds_symbolic(now)
                if not leaked and not namespace.own:
                    continue
                namespace.put_back(key)
                where = f"{namespace.name}.{key}"
                if leaked:
                    problems.append(f"stores a tensor or a size in {where}; {_ADVICE}")
                elif isinstance(now, PLAIN) and not same(now, then):
                    was = "not there" if then is MISSING else repr(then)
                    problems.append(
                        f"changes {where} (from {was} to {now!r}), which a graph would not do again; "
                        "keep it out of the function, or make it a buffer and write into it in place"
                    )
        for namespace in self._globals:
            for key, _, now in namespace.changes():
                if holds_symbolic(now):
                    namespace.put_back(key)
                    problems.append(f"stores a tensor or a size in the global {key}; {_ADVICE}")
        for cell in self._state.closure:
            if holds_symbolic(cell.read()):
                cell.owner.cell_contents = cell.value
                problems.append(f"stores a tensor or a size in the variable {cell.name} around it; {_ADVICE}")
        return problems + self._containers()

    def _containers(self) -> list[str]:
        changed: list[Container] = []
        problems: list[str] = []
        for container in self._state.containers:
            now = container.read()
            if len(now) == len(container.items) and all(a is b for a, b in zip(now, container.items, strict=True)):
                continue
            changed.append(container)
            if holds_symbolic(now):
                container.put_back()
                problems.append(f"stores a tensor or a size in {container.name}; {_ADVICE}")
        self._state.forget_containers(changed)
        return problems


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
