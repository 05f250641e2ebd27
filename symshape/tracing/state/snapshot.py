"""What a traced function reads besides its arguments: modules, closures, globals, and torch's own modes.

Each place that ``reachable`` finds is compared with what it held: parameters, buffers, submodules and other objects by
identity, plain values by value, lists and dictionaries item by item, hooks by presence.  A change is a miss.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch

from symshape.calls.modes import modes
from symshape.tracing.intercept.random_state import address
from symshape.tracing.state.checker import Checker
from symshape.tracing.state.comparison import Hooks, Places, Table
from symshape.tracing.state.comparison import same as same
from symshape.tracing.state.reachable import Container, Reachable

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class State:
    """The state that one program was traced in; ``unchanged`` is what each call asks.

    Attributes:
        modules: the modules that the function can reach, with names.
        containers: the lists, dictionaries and sets that it can reach.
        namespaces: the attributes of other objects that it can reach: name, attributes, whether it is the user's.
        globals: dictionaries of globals, with the names that its code uses.
        closure: the closure cells that it can reach.
        named: the values of the variables around its own code.
        codes: its own code.
        asking: globals of its code that uses names for which ``plain_numbers`` has its own.
    """

    __slots__ = (
        "_cells",
        "_checker",
        "_hooked",
        "_metadata",
        "_names",
        "_tables",
        "_tensor_checks",
        "_tensors",
        "_unhooked",
        "asking",
        "closure",
        "codes",
        "containers",
        "globals",
        "modules",
        "named",
        "namespaces",
    )

    def __init__(self, fn: Callable[..., Any], constants: Iterable[Any] = ()) -> None:
        found = Reachable(fn, constants)
        self.modules = found.modules
        self.containers = found.containers
        self.namespaces = found.namespaces()
        self.globals = found.globals
        self.asking = list(found.asking.values())
        self._cells = found.cells
        self._names = found.names
        self.named = found.named
        self.codes = found.codes
        self.closure = [cell for cell in self._cells if isinstance(cell.owner, types.CellType)]
        self._tensors = list({id(c.value): c.value for c in self._cells if isinstance(c.value, torch.Tensor)}.values())
        self._metadata = list(map(_metadata, self._tensors))
        self._tables = [(name, table, frozenset(table), names) for name, table, names in found.tables()]
        hooks = [getattr(module, name) for _, module in self.modules.values() for name in _HOOKS]
        self._unhooked = [each for each in hooks if not each]
        self._hooked = [(each, tuple(each.values())) for each in hooks if each]
        self._checker: Checker | None = None
        self._tensor_checks: dict[Any, Callable[..., bool]] = {}

    @property
    def empty(self) -> bool:
        """Whether the function reads nothing that can change."""
        return not self._cells and not self.containers and not self._tables

    def covers(self, other: State) -> bool:
        """Whether this state compares everything that another one compares."""
        return other._places() <= self._places()

    def _places(self) -> set[tuple[int, str]]:
        places = {(id(cell.owner), cell.key) for cell in self._cells}
        places |= {(id(each.owner), "") for each in self.containers}
        return places | {(each, "") for each in self.modules}

    # -- the question of each call
    def unchanged(self) -> bool:
        """Whether every place still holds what it held when the program was traced."""
        return (self._checker or self._make_checker())() and self._same_tensors()

    def _make_checker(self) -> Checker:
        hooks = [Hooks(table) for table in self._unhooked] + [Hooks(table, known) for table, known in self._hooked]
        tables = [Table(table, known, names) for _, table, known, names in self._tables]
        self._checker = Checker(Places(self._cells, self.containers, tables, hooks))
        return self._checker

    def _same_tensors(self) -> bool:
        """Whether tensors still have their metadata (``Tensor.data`` can be given another shape or dtype)."""
        if not self._tensors:
            return True
        now = modes()  # torch's check depends on them
        check = self._tensor_checks.get(now)
        if check is not None and check(*self._tensors):
            return True
        if list(map(_metadata, self._tensors)) != self._metadata:
            return False
        self._tensor_checks[now] = _tensor_check(self._tensors)
        return True

    def _same_hooks(self) -> bool:
        return all(tuple(table.values()) == hooks for table, hooks in self._hooked)

    def changes(self) -> list[str]:
        """What is different now, for people."""
        found = [cell.name for cell in self._cells if not same(cell.read(), cell.value)]
        found += [each.name for each in self.containers if not _same_items(each.read(), each.items)]
        for name, table, known, names in self._tables:
            new = table.keys() - known
            found += [f"{name}.{key}" for key in sorted(new if names is None else new & names)]
        if any(self._unhooked) or not self._same_hooks():
            found.append("a module's hooks")
        if self._metadata != list(map(_metadata, self._tensors)):
            then = dict(zip(map(id, self._tensors), self._metadata, strict=True))
            tensors = [cell for cell in self._cells if id(cell.value) in then and cell.name not in found]
            found += [f"{cell.name}.data" for cell in tensors if _metadata(cell.value) != then[id(cell.value)]]
        return found

    def forget_containers(self, gone: Collection[Container]) -> None:
        """Stops comparing some containers: those that the program itself changes."""
        self.containers = [each for each in self.containers if each not in gone]
        self._checker = None

    def generators(self, constants: Iterable[Any] = ()) -> list[torch.Generator]:
        """The random generators that the function can reach, those among ``constants`` included."""
        held = [cell.value for cell in self._cells] + [item for each in self.containers for item in each.items]
        if "default_generator" in self._names:  # torch's own, by its own name
            held.append(torch.default_generator)
        return list({address(v): v for v in (*constants, *held) if isinstance(v, torch.Generator)}.values())

    def tensor_names(self) -> dict[int, str]:
        """The names of parameters, buffers and other tensors, by id."""
        found: dict[int, str] = {}
        for cell in self._cells:
            if isinstance(cell.value, torch.Tensor):
                found.setdefault(id(cell.value), cell.name)
        return found


def _metadata(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        return tensor.dtype, tensor.device, tensor.requires_grad, tensor.shape, tensor.layout
    return tensor.dtype, tensor.device, tensor.requires_grad, tensor.shape, tensor.stride()


def _tensor_check(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """Torch's own check of tensors' metadata, in C++; without it, one that never answers yes.

    (A private name, checked on 2.11 to 2.13.)
    """
    try:
        from torch._C._dynamo.guards import TensorGuards

        sizes: list[Any] = [list(tensor.shape) for tensor in tensors]
        strides: list[Any] = [list(tensor.stride()) for tensor in tensors]
        return TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    except (ImportError, RuntimeError, TypeError):
        return lambda *_: False


def _same_items(now: tuple[Any, ...], then: tuple[Any, ...]) -> bool:
    return len(now) == len(then) and all(map(same, now, then))
