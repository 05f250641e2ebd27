"""What a function can read besides its arguments: closures, globals, defaults, and the objects that hang off them.

The walk follows the user's own functions (and the forward of every module) by the names in their code.  What library
code reads of its own is taken to stay as it is; so is what a program only finds by computing a name (``getattr``).
"""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs
import torch

from symshape.tracing.state.modules import refuse_untraceable
from symshape.user_code import is_library

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
"""Values that are compared by value; everything else is compared by identity."""
MISSING = object()
_BOOKKEEPING = frozenset(torch.nn.Module().__dict__) - {"training"}
_ASKING = frozenset({"isinstance", "type", "len", "divmod", "print", "id"})  # what intercept/builtins.py replaces
_ADDING = ("append", "add", "extend")
_MOST_ITEMS = 1000  # of a container that is compared item by item


@attrs.frozen(eq=False)
class Cell:
    """One place that is read: how to read it again, what was found, and its name for people."""

    owner: Any  # a mapping or a closure cell
    key: str
    value: Any
    name: str

    def read(self) -> Any:
        """What is there now."""
        if isinstance(self.owner, types.CellType):
            try:
                return self.owner.cell_contents
            except ValueError:
                return MISSING
        return self.owner.get(self.key, MISSING)


@attrs.frozen(eq=False)
class Container:
    """A list, dictionary or set with the items that it held."""

    owner: Any
    items: tuple[Any, ...]
    name: str

    def read(self) -> tuple[Any, ...]:
        """The items that it holds now."""
        return items_of(self.owner)

    def put_back(self) -> None:
        """Gives it its old items back."""
        if isinstance(self.owner, dict):
            self.owner.clear()
            self.owner.update(zip(self.items[::2], self.items[1::2], strict=True))
        elif isinstance(self.owner, list):
            self.owner[:] = self.items
        else:
            self.owner.clear()
            self.owner.update(self.items)


def items_of(owner: Any) -> tuple[Any, ...]:
    """The items of a container; keys and values of a dictionary."""
    if isinstance(owner, dict):
        return tuple(part for pair in owner.items() for part in pair)
    return tuple(owner)


class Reachable:
    """Everything that ``fn`` (and the modules and other objects among ``constants``) can read.

    Attributes:
        cells: places that hold one value.
        containers: lists, dictionaries and sets.
        modules: by id, with names.
        globals: dictionaries of globals with the names that the user's code uses.
        names: all names that its code uses.
        named: the values of the globals and closures that the user's own code names.
        codes: the code of the user's own functions.
        asking: globals of code that uses names for which ``plain_numbers`` has its own, by id.
    """

    def __init__(self, fn: Callable[..., Any], constants: Iterable[Any] = ()) -> None:
        self.cells: list[Cell] = []
        self.containers: list[Container] = []
        self.modules: dict[int, tuple[str, torch.nn.Module]] = {}
        self.globals: list[tuple[dict[str, Any], frozenset[str]]] = []
        self.named: list[Any] = []
        self.codes: list[types.CodeType] = []
        self.asking: dict[int, dict[str, Any]] = {}
        self._seen: dict[int, Any] = {}  # kept alive, so that ids stay theirs
        self.names: set[str] = set()
        self._objects: list[tuple[str, Any, set[str]]] = []
        self._callable("", fn)
        for i, constant in enumerate(constants):
            if not isinstance(constant, (*PLAIN, torch.Tensor)):
                self._value(f"argument{i}", constant)
        while self._read_objects():
            pass

    # -- values
    def _cell(self, owner: Any, key: str, value: Any, name: str) -> None:
        """A place, and what lies behind its value."""
        if isinstance(value, (*PLAIN, torch.Tensor)) or self._value(name, value):
            self.cells.append(Cell(owner, key, value, name))

    def _value(self, name: str, value: Any) -> bool:
        """Walks what a value leads to; whether it must stay the very same object."""
        if isinstance(value, torch.nn.Module):
            self._module(name, value)
            return True
        if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
            self._callable(name, value)
            return not isinstance(value, types.FunctionType) or not is_library(value.__code__.co_filename)
        if isinstance(value, (list, dict, set, tuple)):
            return self._container(name, value)
        if isinstance(value, (staticmethod, classmethod, property, functools.cached_property)):
            inner = value.fget if isinstance(value, property) else getattr(value, "func", None) or value.__func__  # type: ignore[union-attr]
            self._callable(name, inner)
            return True
        if type(value).__module__ == "symshape.frontends.compile":  # a compiled function inside another
            self._callable(name, value.fn)
            return True
        return self._object(name, value)

    def _new(self, value: Any) -> bool:
        if id(value) in self._seen:
            return False
        self._seen[id(value)] = value
        return True

    def _container(self, name: str, value: Any) -> bool:
        if len(value) > _MOST_ITEMS:
            return False
        if not self._new(value):
            return True
        items = items_of(value)
        if not isinstance(value, tuple):
            self.containers.append(Container(value, items, name))
        for i, item in enumerate(items):
            if not isinstance(item, PLAIN):
                self._value(f"{name}[{i}]", item)
        return True

    # -- code
    def _callable(self, name: str, fn: Any) -> None:
        if isinstance(fn, torch.nn.Module):
            self._value(name, fn)
        elif isinstance(fn, functools.partial):
            self._callable(name, fn.func)
            for i, value in enumerate((*fn.args, *fn.keywords.values())):
                self._value(f"{name or 'partial'} argument {i}", value)
        elif isinstance(fn, types.MethodType):
            self._value("self", fn.__self__)
            self._function(fn.__func__)
        elif isinstance(fn, types.FunctionType):
            self._function(fn)
            inner = inspect.unwrap(fn)
            if inner is not fn:
                self._callable(name, inner)
        elif not isinstance(fn, type) and isinstance(getattr(type(fn), "__call__", None), types.FunctionType):  # noqa: B004
            self._object(name, fn)
            self._function(type(fn).__call__)

    def _function(self, function: Any) -> None:
        """Closure, defaults and globals that a function's own code names."""
        if not isinstance(function, types.FunctionType) or not self._new(function):
            return
        root = len(self._seen) == 1
        code = function.__code__
        self.names |= _names_of(code)
        names = _globals_of(code)
        if names & _ASKING:
            self.asking[id(function.__globals__)] = function.__globals__
        if not root and is_library(code.co_filename) and function.__name__ != "forward":
            return
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            self.named.append(value)
            self._cell(cell, name, value, name)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._value(f"a default of {function.__name__}", value)
        library = is_library(code.co_filename)
        if not library:
            self.codes.append(code)
            self.globals.append((function.__globals__, names))
        for name in sorted(names & function.__globals__.keys()):
            value = function.__globals__[name]
            if not library:
                self.named.append(value)
            if not library or isinstance(value, (*PLAIN, torch.Tensor)):
                self._cell(function.__globals__, name, value, name)

    # -- modules and objects
    def _module(self, prefix: str, root: torch.nn.Module) -> None:
        for path, module in root.named_modules():
            if id(module) in self.modules:
                continue
            name = ".".join(part for part in (prefix, path) if part)
            self.modules[id(module)] = name, module
            refuse_untraceable(module, name)
            self._function(type(module).forward)
            self._class(type(module))
            for cell in self._module_cells(f"{name}." if name else "", module):
                self._cell(*cell)

    def _module_cells(self, prefix: str, module: torch.nn.Module) -> Iterator[tuple[Any, str, Any, str]]:
        for table in (module._parameters, module._buffers, module._modules):
            for key, value in table.items():
                yield table, key, value, prefix + key
        attributes = module.__dict__
        library = _is_library_module(type(module).__module__)
        for key, value in attributes.items():
            if key in _BOOKKEEPING or (library and (key.startswith("_") or isinstance(value, (list, dict, set)))):
                continue
            yield attributes, key, value, prefix + key

    def _object(self, name: str, value: Any) -> bool:
        """Something whose attributes the program's code names: a configuration, a Python module, a class."""
        if isinstance(value, types.ModuleType):
            home = value.__name__
            if is_library(getattr(value, "__file__", None) or "<frozen"):
                return False
        else:
            home = str((value if isinstance(value, type) else type(value)).__module__)
        if home.partition(".")[0] in ("torch", "builtins") or not isinstance(getattr(value, "__dict__", None), Mapping):
            return not callable(value)
        if self._new(value):
            self._objects.append((name, value, set()))
            self._class(value if isinstance(value, type) else type(value))
        return True

    def _class(self, kind: type) -> None:
        """The user's own classes of an object: methods and attributes, as far as the program's code names them."""
        for each in kind.__mro__:
            if each.__module__ == "builtins" or _is_library_module(each.__module__):
                continue
            if self._new(each):
                self._objects.append((each.__qualname__, each, set()))

    def tables(self) -> list[tuple[str, Mapping[str, Any], frozenset[str] | None]]:
        """Where a new key can be read: with the names that count, or None where every new key does."""
        found: list[tuple[str, Mapping[str, Any], frozenset[str] | None]] = []
        names = frozenset(self.names)
        for name, module in self.modules.values():
            label = name or type(module).__name__
            found.append((label, module.__dict__, names))
            found += [(label, table, None) for table in (module._parameters, module._buffers, module._modules)]
        found += [
            (name, value.__dict__, names) for name, value, _ in self._objects if not isinstance(value, types.ModuleType)
        ]
        return found

    def namespaces(self) -> list[tuple[str, dict[str, Any], bool]]:
        """The attributes of the objects that were found (classes and Python modules aside), and whether the object is
        of a class of the user's.
        """
        return [
            (name, value.__dict__, not _is_library_module(type(value).__module__))
            for name, value, _ in self._objects
            if not isinstance(value, (type, types.ModuleType)) and isinstance(value.__dict__, dict)
        ]

    def _read_objects(self) -> bool:
        """Reads the attributes named by now; whether there were new ones."""
        grown = False
        for name, value, done in list(self._objects):
            attributes = value.__dict__
            for key in sorted((self.names & attributes.keys()) - done):
                done.add(key)
                grown = True
                self._cell(attributes, key, attributes[key], f"{name}.{key}" if name else key)
        return grown


@functools.lru_cache(maxsize=4096)
def _is_library_module(name: str) -> bool:
    return is_library(getattr(sys.modules.get(name), "__file__", None) or "")


@functools.lru_cache(maxsize=4096)
def _globals_of(code: types.CodeType) -> frozenset[str]:
    """Names of globals that code uses (an attribute may have the name of a global that it does not use)."""
    names = {each.argval for each in dis.get_instructions(code) if each.opname.endswith(("_GLOBAL", "_NAME"))}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _globals_of(constant)
    return frozenset(names)


def only_appends(codes: Iterable[types.CodeType], name: str) -> bool:
    """Whether code does nothing with ``name`` but add to it (``name.append(...)``), as one does to a log.

    >>> only_appends([compile("log.append(1)", "", "exec")], "log")
    True
    >>> only_appends([compile("log.append(len(log))", "", "exec")], "log")
    False
    """
    if not name.isidentifier():  # an item of something
        return False
    for code in codes:
        for step, following in itertools.pairwise(dis.get_instructions(code)):
            read = step.argval == name and step.opname.startswith("LOAD_")
            if read and (following.argval not in _ADDING or following.opname not in ("LOAD_METHOD", "LOAD_ATTR")):
                return False
        if not only_appends((each for each in code.co_consts if isinstance(each, types.CodeType)), name):
            return False
    return True


@functools.lru_cache(maxsize=4096)
def _names_of(code: types.CodeType) -> frozenset[str]:
    """Names that code uses: of globals and attributes, and those it spells as strings (``getattr(x, "name")``)."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_of(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            names.add(constant)
    return frozenset(names)
