"""What a traced function reads besides its arguments: modules, closures, globals, and torch's own modes.

Each place that ``reachable`` finds is compared with what it held: parameters, buffers, submodules and other objects by
identity, plain values by value, lists and dictionaries item by item, hooks by presence.  A change is a miss.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable
from operator import attrgetter, is_, itemgetter
from typing import Any

import torch

from symshape.tracing.reachable import PLAIN, Cell, Container, Reachable

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_dtype = attrgetter("dtype")
_AUTOCAST_DEVICES = ("cpu", "cuda")

_is_grad_enabled = torch.is_grad_enabled
_is_inference = torch.is_inference_mode_enabled
_any_autocast = torch._C._is_any_autocast_enabled
_default_dtype = torch.get_default_dtype
_function_modes = torch._C._len_torch_function_stack


def modes() -> tuple[Any, ...]:
    """Torch's modes that change what a program computes: gradients, inference, autocast, default dtype and device."""
    plain = (_is_grad_enabled(), _is_inference(), _default_dtype())
    if not _any_autocast() and not _function_modes():
        return plain
    autocast = tuple(
        (device, torch.get_autocast_dtype(device)) for device in _AUTOCAST_DEVICES if torch.is_autocast_enabled(device)
    )
    return (*plain, autocast, str(torch.get_default_device()) if _function_modes() else "")


def describe_modes(key: tuple[Any, ...]) -> str:
    """The modes for people."""
    grad, inference, dtype, *rest = key
    parts = ["inference mode" if inference else "grad mode" if grad else "no_grad", f"default dtype {dtype}"]
    if rest and rest[0]:
        parts.append("autocast " + ", ".join(f"{device} {dtype}" for device, dtype in rest[0]))
    if len(rest) > 1 and rest[1]:
        parts.append(f"default device {rest[1]}")
    return ", ".join(parts)


class State:
    """The state that one program was traced in; ``unchanged`` is what each call asks.

    Attributes:
        modules: the modules that the function can reach, with names.
        containers: the lists, dictionaries and sets that it can reach.
        namespaces: the attributes of other objects that it can reach, with names.
        globals: dictionaries of globals, with the names that its code uses.
        closure: the closure cells that it can reach.
    """

    __slots__ = (
        "_cells",
        "_dtypes",
        "_getters",
        "_hooked",
        "_owners",
        "_rest",
        "_tensors",
        "_unhooked",
        "_values",
        "closure",
        "containers",
        "globals",
        "modules",
        "namespaces",
    )

    def __init__(self, fn: Callable[..., Any], constants: Iterable[Any] = ()) -> None:
        found = Reachable(fn, constants)
        self.modules = found.modules
        self.containers = found.containers
        self.namespaces = found.namespaces()
        self.globals = found.globals
        self._cells = found.cells
        self.closure = [cell for cell in self._cells if isinstance(cell.owner, types.CellType)]
        self._tensors = list({id(c.value): c.value for c in self._cells if isinstance(c.value, torch.Tensor)}.values())
        self._dtypes = list(map(_dtype, self._tensors))
        hooks = [getattr(module, name) for _, module in self.modules.values() for name in _HOOKS]
        self._unhooked = [each for each in hooks if not each]
        self._hooked = [(each, tuple(each.values())) for each in hooks if each]
        self._compile()

    def _compile(self) -> None:
        """Groups the cells by dictionary, so that one C-level getter reads each dictionary."""
        groups: dict[int, list[Cell]] = {}
        self._rest: list[Cell] = []
        for cell in self._cells:
            if isinstance(cell.owner, types.CellType):
                self._rest.append(cell)
            else:
                groups.setdefault(id(cell.owner), []).append(cell)
        self._owners = [cells[0].owner for cells in groups.values()]
        self._getters: list[Callable[[Any], Any]] = []
        self._values: list[Any] = []
        for cells in groups.values():
            if len(cells) == 1:
                self._getters.append(lambda owner, key=cells[0].key: (owner[key],))  # type: ignore[misc]
            else:
                self._getters.append(itemgetter(*(cell.key for cell in cells)))
            self._values.append(tuple(cell.value for cell in cells))

    @property
    def empty(self) -> bool:
        """Whether the function reads nothing that can change."""
        return not self._cells and not self.containers

    def covers(self, other: State) -> bool:
        """Whether this state compares everything that another one compares."""
        return other._places() <= self._places()

    def _places(self) -> set[tuple[int, str]]:
        places = {(id(cell.owner), cell.key) for cell in self._cells}
        places |= {(id(each.owner), "") for each in self.containers}
        return places | {(each, "") for each in self.modules}

    def unchanged(self) -> bool:
        """Whether every place still holds the very object that it held when the program was traced."""
        try:
            for getter, owner, values in zip(self._getters, self._owners, self._values, strict=True):
                if not all(map(is_, getter(owner), values)):
                    return self._equal_enough()
        except KeyError:
            return False
        for cell in self._rest:
            if cell.read() is not cell.value:
                return self._equal_enough()
        for container in self.containers:
            items = container.read()
            if len(items) != len(container.items) or not all(map(is_, items, container.items)):
                return self._equal_enough()
        return not any(self._unhooked) and list(map(_dtype, self._tensors)) == self._dtypes and self._same_hooks()

    def _same_hooks(self) -> bool:
        return all(tuple(table.values()) == hooks for table, hooks in self._hooked)

    def _equal_enough(self) -> bool:
        return not self.changes()

    def changes(self) -> list[str]:
        """What is different now, for people."""
        found = [cell.name for cell in self._cells if not same(cell.read(), cell.value)]
        found += [each.name for each in self.containers if not _same_items(each.read(), each.items)]
        if any(self._unhooked) or not self._same_hooks():
            found.append("a module's hooks")
        for cell in self._cells:
            if isinstance(cell.value, torch.Tensor) and cell.name not in found:
                then = next(d for t, d in zip(self._tensors, self._dtypes, strict=True) if t is cell.value)
                if cell.value.dtype is not then:
                    found.append(f"{cell.name} (its dtype)")
        return found

    def forget_containers(self, gone: Collection[Container]) -> None:
        """Stops comparing some containers: those that the program itself changes."""
        self.containers = [each for each in self.containers if each not in gone]

    def tensor_names(self) -> dict[int, str]:
        """The names of parameters, buffers and other tensors, by id."""
        found: dict[int, str] = {}
        for cell in self._cells:
            if isinstance(cell.value, torch.Tensor):
                found.setdefault(id(cell.value), cell.name)
        return found


def same(now: Any, then: Any) -> bool:
    """Whether a place still holds what it held: the same object, or an equal plain value."""
    return now is then or (type(now) is type(then) and isinstance(now, PLAIN) and repr(now) == repr(then))


def _same_items(now: tuple[Any, ...], then: tuple[Any, ...]) -> bool:
    return len(now) == len(then) and all(map(same, now, then))
