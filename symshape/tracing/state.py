"""What a traced function reads besides its arguments: modules, closures, globals, and torch's own modes.

Module training flags, plain attributes, parameters and buffers are compared by identity, submodules too; a change is
a miss.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from operator import is_, itemgetter
from typing import Any

import attrs
import torch

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
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


@attrs.frozen(eq=False)
class _Cell:
    """One place that was read: how to read it again, what was found, and its name."""

    owner: Any  # a dict or a closure cell
    key: str
    value: Any
    name: str

    def read(self) -> Any:
        if isinstance(self.owner, types.CellType):
            try:
                return self.owner.cell_contents
            except ValueError:
                return _MISSING
        return self.owner.get(self.key, _MISSING)


_MISSING = object()


class State:
    """The state that one program was traced in; ``unchanged`` is what each call asks.

    Attributes:
        modules: the modules that the function can reach, with names.
    """

    __slots__ = ("_cells", "_getters", "_owners", "_rest", "_values", "modules")

    def __init__(self, fn: Callable[..., Any], constants: Iterable[Any] = ()) -> None:
        outside = list(_outside_values(fn))
        roots = [("", fn)] if isinstance(fn, torch.nn.Module) else []
        roots += [(cell.name, cell.value) for cell in outside if isinstance(cell.value, torch.nn.Module)]
        owner = getattr(fn, "__self__", None)
        if isinstance(owner, torch.nn.Module):
            roots.append(("self", owner))
        roots += [(f"argument{i}", each) for i, each in enumerate(constants) if isinstance(each, torch.nn.Module)]
        self.modules: dict[int, tuple[str, torch.nn.Module]] = {}
        for prefix, root in roots:
            for name, module in root.named_modules():
                self.modules.setdefault(id(module), (".".join(part for part in (prefix, name) if part), module))
        self._cells = [cell for cell in outside if isinstance(cell.value, (*_PLAIN, torch.nn.Module))]
        for name, module in self.modules.values():
            self._cells += _module_cells(name, module)
        self._compile()

    def _compile(self) -> None:
        """Groups the cells by dictionary, so that one C-level getter reads each dictionary."""
        groups: dict[int, list[_Cell]] = {}
        self._rest: list[_Cell] = []
        for cell in self._cells:
            if isinstance(cell.owner, dict):
                groups.setdefault(id(cell.owner), []).append(cell)
            else:
                self._rest.append(cell)
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
        return not self._cells

    def unchanged(self) -> bool:
        """Whether every place still holds the very object that it held when the program was traced."""
        try:
            for getter, owner, values in zip(self._getters, self._owners, self._values, strict=True):
                if not all(map(is_, getter(owner), values)):
                    return self._equal_enough()
        except KeyError:
            return False
        return all(cell.read() is cell.value for cell in self._rest) or self._equal_enough()

    def _equal_enough(self) -> bool:
        return not self.changes()

    def changes(self) -> list[str]:
        """What is different now, for people."""
        return [cell.name for cell in self._cells if not _same(cell.read(), cell.value)]

    def tensor_names(self) -> dict[int, str]:
        """The names of parameters and buffers, by id."""
        found: dict[int, str] = {}
        for prefix, module in self.modules.values():
            for table in (module._parameters, module._buffers):
                for name, tensor in table.items():
                    if tensor is not None:
                        found.setdefault(id(tensor), f"{prefix}.{name}" if prefix else name)
        return found


def _same(now: Any, then: Any) -> bool:
    return now is then or (type(now) is type(then) and isinstance(now, _PLAIN) and repr(now) == repr(then))


def _module_cells(name: str, module: torch.nn.Module) -> Iterator[_Cell]:
    prefix = f"{name}." if name else ""
    for table in (module._parameters, module._buffers, module._modules):
        for key, value in table.items():
            yield _Cell(table, key, value, prefix + key)
    attributes = module.__dict__
    for key, value in attributes.items():
        if isinstance(value, _PLAIN) and not key.startswith("_"):
            yield _Cell(attributes, key, value, prefix + key)


def _outside_values(fn: Callable[..., Any]) -> Iterator[_Cell]:
    """Closure cells, globals and defaults that the function's own code names."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    target = inspect.unwrap(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    function = getattr(target, "__func__", target)
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield _Cell(cell, name, cell.cell_contents, name)
        except ValueError:
            continue
    for name in sorted(_global_names(code)):
        if name in function.__globals__:
            yield _Cell(function.__globals__, name, function.__globals__[name], name)


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names
