"""What a program reads besides its arguments, written down while it runs.

Whatever code reads it has to load first: a global name, an attribute, the variable of a closure, an item of something
loaded.  The functions that run are instrumented (``instrument``) where they are loaded; each load of something that may
change becomes a place, with the value that was there before the trace.  What a recording cannot see into (a generator
of numbers, a clock, an iterator, an object of C) is refused by name and never taken to stay.
"""

from __future__ import annotations

import contextvars
import decimal
import functools
import logging
import os
import random
import sys
import threading
import types
import warnings
from collections import deque
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules import module as _torch_modules

from symshape.errors import UnsupportedError
from symshape.tracing.state import lookups, trusted
from symshape.tracing.state.instrument import Hooks, instrumented, is_instrumented
from symshape.tracing.state.places import MISSING, PLAIN, Answer, Attribute, Cell, Container, Place, Table, items_of
from symshape.tracing.state.substitutes import Substitutes
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.user_code import is_library

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)
_TABLES = ("_parameters", "_buffers", "_modules")
_SYMBOLIC = (SymbolicTensor, torch.SymInt, torch.SymFloat, torch.SymBool)
_CONTAINERS = (list, dict, set, deque, bytearray)
_FUNCTIONS_OF_C = (types.BuiltinFunctionType, types.MethodWrapperType)
_NOT_TO_SEE = "of which symshape cannot see what it gives; pass what it gives as an argument"


class Namespace:
    """A dictionary of attributes or globals as it was before the trace; ``own``: of the user's code."""

    __slots__ = ("before", "kind", "name", "own", "owner")

    def __init__(self, name: str, owner: Any, own: bool, kind: type | None) -> None:
        self.name, self.owner, self.before, self.own, self.kind = name, owner, dict(owner), own, kind


class Recorder:
    """One recording: of ``fn``, called with ``constants`` among its arguments; it may not print if a graph ``serves``.

    Attributes:
        places: what was read, each place once.
        containers: lists, dictionaries, sets … that were loaded.
        tables: dictionaries in which something was looked for in vain.
        modules: by id, with names.
        tensors: names of real tensors, by id.
        namespaces: by id of the dictionary: how it was.
        slots: values of attributes that stand in no dictionary, before.
        memos: functions with a memo (``lru_cache``), with the misses that they had.
        refusals: what was read that cannot be seen into, in words.
        on_generator: told of each random generator that is loaded.
    """

    def __init__(self, fn: Callable[..., Any], constants: Iterable[Any] = (), *, serves: bool = True) -> None:
        self.serves = serves
        self.places: list[Place] = []
        self.containers: list[Container] = []
        self.tables: dict[int, Table] = {}
        self.modules: dict[int, tuple[str, torch.nn.Module]] = {}
        self.tensors: dict[int, str] = {}
        self.namespaces: dict[int, Namespace] = {}
        self.slots: list[Attribute] = []
        self.memos: list[tuple[Any, int]] = []
        self.generators: list[torch.Generator] = []
        self.refusals: list[str] = []
        self.asker = ""  # the file of the code that reads now
        self.on_generator: Callable[[torch.Generator], object] = self.generators.append
        self.known: dict[int, Any] = {}  # kept alive, so that ids stay theirs
        self._names: dict[int, str] = {}
        self._kinds: set[int] = set()
        self._seen: set[tuple[int, Any]] = set()
        self._functions: dict[int, list[tuple[types.FunctionType, str]]] = {}
        self._swapped: list[tuple[types.FunctionType, types.CodeType]] = []
        self.busy = False
        self.thread = threading.get_ident()
        self._weakly = False
        self._root = fn
        self._constants = tuple(constants)

    # -- from beginning to end
    @contextmanager
    def recording(self) -> Iterator[None]:
        """Inside, what runs in this thread is recorded."""
        global _active
        outer, _active = _active, self
        try:
            self._begin()
            yield
        finally:
            _active = outer
            for function, code in reversed(self._swapped):
                function.__code__ = code
            self._swapped.clear()

    def _begin(self) -> None:
        for name in _GLOBAL_HOOKS:
            self._hook_table("global hooks of modules", getattr(_torch_modules, name))
        fn = self._root
        self.touch(fn, "" if isinstance(fn, torch.nn.Module) else getattr(fn, "__name__", "the function"))
        for i, constant in enumerate(self._constants):
            self.touch(constant, f"argument{i}")

    def refuse(self, what: str) -> None:
        """Notes what cannot be recorded.

        Raises:
            UnsupportedError: always; if the program catches it, the trace is refused at its end.
        """
        self.refusals.append(what)
        raise UnsupportedError(f"the program {what}")

    def tells(self, what: str) -> None:
        """The user's code is about to tell people something, which a graph would not do again.

        Raises:
            UnsupportedError: if the graph is to serve in the place of the function.
        """
        if self.serves and not is_library(self.asker):
            self.refuse(f"{what}, which a graph would not do again; keep that out of the function")

    # -- values
    def touch(self, value: Any, name: str) -> None:
        """A value that was there before the trace, or may have been, was loaded: what it leads to is looked at."""
        kind = type(value)
        handler = _handlers.get(kind, MISSING)
        if handler is MISSING:
            handler = _handlers[kind] = _handler_for(kind)
        if handler is not None and id(value) not in self.known:
            self.known[id(value)] = value
            handler(self, value, name)

    def place(self, place: Place) -> None:
        """Notes a place, once, unless the trace itself wrote there before it read."""
        key = (id(place.owner), place.key)
        if key not in self._seen:
            self._seen.add(key)
            if not issubclass(type(place.value), _SYMBOLIC):
                self.places.append(place)

    def namespace(self, name: str, owner: Any, own: bool = True, kind: type | None = None) -> Namespace:
        """How a dictionary was when it was first met; of a class, ``kind``, its attributes."""
        key = id(owner) if kind is None else id(kind)
        found = self.namespaces.get(key)
        if found is None:
            found = self.namespaces[key] = Namespace(name, owner, own, kind)
        return found

    def entry(self, owner: Any, key: Any, name: str, namespace: Namespace) -> None:
        """An entry of a dictionary was read."""
        if (id(owner), key) in self._seen:
            return
        value = owner.get(key, MISSING)
        if namespace.before.get(key, MISSING) is value:
            self.place(Cell(owner, key, value, name))
        self.touch(value, name)

    def absent(self, name: str, owner: Any, key: str, namespace: Namespace) -> None:
        """A name was looked for in a dictionary and was not there before the trace."""
        if key in namespace.before:
            return
        table = self.tables.get(id(owner))
        if table is None:
            table = self.tables[id(owner)] = Table(name, owner, frozenset(namespace.before), set())
        if table.names is not None:
            table.names.add(key)

    # -- loads
    def enter(self, code: types.CodeType) -> None:
        """A function begins: the variables around it may be read."""
        for function, _ in self._functions.pop(id(code), ()):
            self.namespace("", function.__globals__)
            for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
                try:
                    value = cell.cell_contents
                except ValueError:
                    continue
                self.place(Cell(cell, name, value, name))
                self.touch(value, name)

    def load_global(self, name: str, namespace: dict[str, Any], builtins: dict[str, Any]) -> None:
        """A global name is about to be read."""
        if (id(namespace), name) not in self._seen:
            before = self.namespace("", namespace)
            if name in namespace:
                self.entry(namespace, name, name, before)
                return
            self.absent("", namespace, name, before)
            if name in trusted.BUILTINS:
                self.touch(builtins[name], name)
            elif name in builtins:
                self.entry(builtins, name, name, self.namespace("builtins", builtins))
            else:
                self.absent("builtins", builtins, name, self.namespace("builtins", builtins))

    def load_module(self, module: Any, name: str) -> None:
        """A module was imported while the function ran."""
        full = name if name in sys.modules else getattr(module, "__name__", name)
        if sys.modules.get(full) is module and not trusted.is_machinery(full):
            self.place(Cell(sys.modules, full, module, f"the module {full}"))

    def load_attr(self, owner: Any, key: str) -> None:
        """An attribute is about to be read."""
        kind = type(owner)
        if kind in _QUIET:
            return
        reader = _readers.get(kind)
        if reader is None:
            reader = _readers[kind] = _reader_for(kind)
        reader(self, owner, key)

    def setter(self, owner: Any, key: str) -> None:
        """An attribute is about to be set."""
        found = lookups.static(type(owner), key)
        if found is not MISSING and hasattr(type(found), "__set__"):
            self._touch_member(found, f"{type(owner).__qualname__}.{key}")

    def listed(self, owner: Any) -> None:
        """All attributes of an object are about to be listed."""
        self.touch(owner, type(owner).__name__)
        attributes = lookups.attributes_of(owner)
        if attributes is not None:
            name = self._names.get(id(owner), type(owner).__name__)
            before = self.namespace(name, attributes)
            table = self.tables.setdefault(id(attributes), Table(name, attributes, frozenset(before.before), None))
            table.names = None

    def of_nothing(self, owner: Any, key: str) -> None:
        """An attribute of a value that never changes; of a method of such a value."""

    def of_tensor(self, owner: torch.Tensor, key: str) -> None:
        """An attribute that was set on a tensor, or a method of tensors."""
        self.of_every_tensor(owner, key)
        name = self.tensors.get(id(owner), "a tensor")
        before = self.namespace(name, owner.__dict__)
        if key in owner.__dict__:
            self.entry(owner.__dict__, key, f"{name}.{key}", before)
        elif not hasattr(torch.Tensor, key):
            self.absent(name, owner.__dict__, key, before)

    def of_every_tensor(self, owner: torch.Tensor, key: str) -> None:
        """A method of tensors: nobody exchanges it, or if so, it is seen."""
        methods = torch.Tensor.__dict__
        if (id(methods), key) not in self._seen:
            if key in methods:
                self.place(Cell(methods, key, methods[key], f"Tensor.{key}"))
            else:
                self.absent("Tensor", methods, key, self.namespace("Tensor", methods, kind=torch.Tensor))
            self._seen.add((id(methods), key))

    def of_python_module(self, owner: types.ModuleType, key: str) -> None:
        """An attribute of a module of Python's."""
        attributes = owner.__dict__
        name = f"{owner.__name__}.{key}"
        if owner is warnings and key in trusted.WARNING:
            self.tells("warns")
        if owner is decimal:
            self.place(Answer(_decimal_context, _decimal_context(), "the context of decimal"))
        if key == "__dict__":
            self.refuse(f"lists the names of the module {owner.__name__}, {_NOT_TO_SEE}")
        if key in trusted.SETTERS and owner is torch:
            self.refuse(f"calls torch.{key}, which a graph would not do again; do that around the function")
        if key in attributes and str(getattr(attributes[key], "__module__", "")).startswith("symshape."):
            return  # what stands for a function of torch's while tracing
        before = self.namespace(owner.__name__, attributes)
        if key in attributes:
            self.entry(attributes, key, name, before)
        elif type(owner) is not types.ModuleType:  # torch.backends and its like: flags behind descriptors
            value = getattr(owner, key, MISSING)
            if isinstance(value, PLAIN):
                self.place(Answer(functools.partial(getattr, owner, key, MISSING), value, name, key))
            self.touch(value, name)
        else:
            self.absent(owner.__name__, attributes, key, before)
            if "__getattr__" in attributes:
                self.entry(attributes, "__getattr__", f"{owner.__name__}.__getattr__", before)

    def of_class(self, owner: type, key: str) -> None:
        """An attribute of a class."""
        if key == "__subclasses__" or (key in trusted.CHANGING_METHODS and owner.__module__ == "datetime"):
            self.refuse(f"asks for {owner.__qualname__}.{key}, {_NOT_TO_SEE}")
        if key in ("__dict__", "__mro__", "__bases__"):
            return
        self._look_up(owner, key, owner.__qualname__)
        if type(owner) is not type:
            self._look_up(type(owner), key, type(owner).__qualname__)

    def of_super(self, owner: Any, key: str) -> None:
        """An attribute found after a class in the order of a method's look-up."""
        start, kind = owner.__thisclass__, owner.__self_class__
        order = kind.__mro__
        for each in order[order.index(start) + 1 :]:
            if key in each.__dict__:
                self._class_entry(each, key, f"{each.__qualname__}.{key}")
                return

    def of_function(self, owner: types.FunctionType, key: str) -> None:
        """An attribute of a function."""
        name = f"{owner.__name__}.{key}"
        attributes = owner.__dict__
        before = self.namespace(owner.__name__, attributes)
        if key in attributes:
            self.entry(attributes, key, name, before)
        elif key in ("__dict__",):
            self.touch(attributes, owner.__name__)
        elif not hasattr(types.FunctionType, key):
            self.absent(owner.__name__, attributes, key, before)

    def of_object(self, owner: Any, key: str) -> None:
        """An attribute of an object of a class of Python's."""
        kind = type(owner)
        if key in trusted.LOGGING and issubclass(kind, (logging.Logger, logging.LoggerAdapter)):
            self.tells("logs, or asks what is logged")
        found = self._look_up(kind, key, kind.__qualname__)
        if id(owner) not in self.known:  # made while tracing: what it holds was loaded, or made, as well
            return
        name = self._names.get(id(owner), kind.__name__)
        full = f"{name}.{key}" if name else key
        data = found is not MISSING and hasattr(type(found), "__set__")
        if data and isinstance(found, types.MemberDescriptorType):
            self._slot(owner, key, full)
            return
        attributes = lookups.attributes_of(owner)
        if attributes is None or (data and key != "__dict__"):
            return
        if key == "__dict__":
            self.touch(attributes, name)
            return
        before = self.namespace(name, attributes, not trusted.is_machinery(kind.__module__))
        if key in attributes:
            self.entry(attributes, key, full, before)
        elif issubclass(kind, torch.nn.Module):
            self._of_module(owner, key, found, name, before)
        else:
            self.absent(name or kind.__name__, attributes, key, before)

    def _of_module(self, owner: torch.nn.Module, key: str, found: Any, name: str, before: Namespace) -> None:
        """A method, parameter, buffer or submodule of a module, or nothing."""
        full = f"{name}.{key}" if name else key
        label = name or type(owner).__name__
        self.absent(label, owner.__dict__, key, before)
        if found is not MISSING:
            if key in _WALKS:
                for path, module in owner.named_modules():
                    self._whole_module(f"{name}.{path}".strip("."), module)
            return
        for each in _TABLES:
            table = owner.__dict__.get(each)
            if table is None:
                continue
            then = self.namespace(label, table)
            if key in table:
                self.entry(table, key, full, then)
                return
            self.absent(label, table, key, then)

    def _whole_module(self, name: str, module: torch.nn.Module) -> None:
        self.touch(module, name)
        for each in _TABLES:
            table = module.__dict__.get(each)
            if table is not None:
                self.touch(table, name)

    # -- look-ups in classes
    def _look_up(self, kind: type, key: str, name: str) -> Any:
        """What the classes of an object have under a name; answers what stands there."""
        for each in kind.__mro__:
            if key in each.__dict__:
                found = each.__dict__[key]
                if not trusted.is_machinery(each.__module__) or key == "forward":
                    self._class_place(kind, each, key, found, f"{name}.{key}")
                self._touch_member(found, f"{name}.{key}")
                return found
        return MISSING

    def _class_place(self, kind: type, home: type, key: str, found: Any, name: str) -> None:
        if (id(kind), key) in self._seen:
            return
        self.known.setdefault(id(kind), kind)
        self.namespace(home.__qualname__, home.__dict__, kind=home)
        self.place(lookups.place_of(kind, key, found, name))

    def _class_entry(self, home: type, key: str, name: str) -> None:
        found = home.__dict__[key]
        if not trusted.is_machinery(home.__module__) or key == "forward":
            self.place(Cell(home.__dict__, key, found, name))
        self._touch_member(found, name)

    def _touch_member(self, found: Any, name: str) -> None:
        """A method, property or other descriptor of a class."""
        if isinstance(found, (staticmethod, classmethod)):
            self.touch(found.__func__, name)
        elif isinstance(found, property):
            for each in (found.fget, found.fset):
                if each is not None:
                    self.touch(each, name)
        elif isinstance(found, functools.cached_property):
            self.touch(found.func, name)
        else:
            self.touch(found, name)

    def _slot(self, owner: Any, key: str, name: str) -> None:
        value = getattr(owner, key, MISSING)
        then = next((each.value for each in self.slots if each.owner is owner and each.key == key), value)
        if then is value:
            self.place(Attribute(owner, key, value, name))
        self.touch(value, name)

    # -- what hangs off a value
    def touch_function(self, function: types.FunctionType, name: str) -> None:
        """A function of Python's: it will tell what it reads, unless it is taken to stay."""
        code = function.__code__
        if is_instrumented(code, HOOKS):  # made by a function that runs now
            return
        hidden = trusted.hides(function)
        if hidden:
            self.refuse(f"calls {hidden}, {_NOT_TO_SEE}")
        if function is os.getenv:
            self.touch(os.environ, "os.environ")
        if trusted.is_trusted(code.co_filename):
            for cell in function.__closure__ or ():
                with _nothing_there():
                    self.touch(cell.cell_contents, name)
        else:
            self._functions.setdefault(id(code), []).append((function, name))
            self.known[id(code)] = code
            self._swapped.append((function, code))
            function.__code__ = instrumented(code, HOOKS)
            if not is_library(code.co_filename):
                self._function_places(function, code, name)
            for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
                self.touch(value, f"a default of {function.__name__}")
        wrapped = function.__dict__.get("__wrapped__")
        if wrapped is not None:
            self.touch(wrapped, name)

    def _function_places(self, function: types.FunctionType, code: types.CodeType, name: str) -> None:
        label = function.__name__
        self.place(Attribute(function, "__code__", code, f"{label}.__code__"))
        self.place(Attribute(function, "__defaults__", function.__defaults__, f"defaults of {label}"))
        self.place(Attribute(function, "__kwdefaults__", function.__kwdefaults__, f"defaults of {label}"))
        if function.__kwdefaults__:
            self.touch_container(function.__kwdefaults__, f"defaults of {label}")
        self.namespace(label, function.__dict__)

    def touch_method(self, method: types.MethodType, name: str) -> None:
        """A bound method."""
        if method.__self__ is random._inst:  # watched as a whole: see ``Draws``
            return
        self.touch(method.__self__, "self" if method is self._root else name)
        self.touch(method.__func__, name)

    def touch_partial(self, value: Any, name: str) -> None:
        """A ``functools.partial``: its function and arguments stay, its keywords need not."""
        self.touch(value.func, name)
        for i, each in enumerate(value.args):
            self.touch(each, f"{name or 'partial'} argument {i}")
        self.touch_container(value.keywords, f"keywords of {name or 'partial'}")

    def touch_memo(self, value: Any, name: str) -> None:
        """A function with a memo: what it answers from the memo was computed by nobody that we saw."""
        self.memos.append((value, value.cache_info().misses))
        self.touch(value.__wrapped__, name)

    def touch_c_function(self, value: Any, name: str) -> None:
        """A function of C."""
        if value is warnings.warn:
            self.tells("warns")
        hidden = trusted.hides(value)
        if hidden:
            self.refuse(f"calls {hidden}, {_NOT_TO_SEE}")
        owner = getattr(value, "__self__", None)
        if owner is not None and owner is not random._inst and not isinstance(owner, (type, types.ModuleType)):
            self.touch(owner, name)

    def touch_tuple(self, value: Any, name: str) -> None:
        """Items that stay; what they lead to need not."""
        for i, item in enumerate(value):
            if type(item) not in PLAIN:
                self.touch(item, f"{name}[{i}]")
        if not trusted.is_of_c(type(value)):
            self._touch_instance(value, name)

    def touch_container(self, value: Any, name: str) -> None:
        """A list, dictionary, set … of which any item may be read."""
        self.known.setdefault(id(value), value)
        items = items_of(value)
        self.containers.append(Container(value, items, name))
        if isinstance(value, bytearray):
            return
        table = self._names.get(id(value))  # of a module: its entries are called like attributes
        if table is not None:
            for key, item in zip(items[::2], items[1::2], strict=True):
                self.touch(item, f"{table}.{key}" if table else key)
        else:
            for i, item in enumerate(items):
                if type(item) not in PLAIN:
                    self.touch(item, f"{name}[{i}]")
        if not trusted.is_of_c(type(value)):
            self._touch_instance(value, name)

    def touch_mapping_proxy(self, value: Any, name: str) -> None:
        """A view of a dictionary that cannot be reached."""
        for item in value.values():
            self.touch(item, name)
        read = functools.partial(_items_of_proxy, value)
        self.place(Answer(read, read(), name))

    def touch_array(self, value: Any, name: str) -> None:
        """A NumPy array: by its content, as long as that is little."""
        if value.dtype.hasobject or value.nbytes > _MOST_BYTES:
            self.refuse(f"reads the NumPy array {name}, of {value.nbytes:,} bytes; pass it as a tensor")
        self.containers.append(Container(value, items_of(value), name))

    def touch_context_variable(self, value: Any, name: str) -> None:
        """A context variable: asked again."""
        ask = functools.partial(value.get, MISSING)
        self.place(Answer(ask, ask(), name))
        self.touch(ask(), name)

    def touch_weak(self, value: Any, name: str) -> None:
        """A weak reference: that what it refers to is the same, and there."""
        target = value()
        self.place(Answer(functools.partial(_refers_to, value, id(target)), True, name))
        outer, self._weakly = self._weakly, True
        self.touch(target, name)
        self._weakly = outer

    def touch_generator(self, value: torch.Generator, name: str) -> None:
        """A random generator of torch's."""
        self.on_generator(value)

    def touch_tensor(self, value: torch.Tensor, name: str) -> None:
        """A real tensor: a parameter, a buffer, a global."""
        self.tensors.setdefault(id(value), name)
        self.namespace(name, value.__dict__)
        if value.requires_grad and torch.is_grad_enabled():
            self.place(Attribute(value, "_backward_hooks", value._backward_hooks, f"hooks of {name}"))
        hooks = getattr(value, "_backward_hooks", None)
        if hooks:
            self._hook_table(f"hooks of {name}", hooks)

    def touch_class(self, value: type, name: str) -> None:
        """A class: what making an object of it runs."""
        if trusted.is_machinery(value.__module__):
            return
        of_autograd = issubclass(value, torch.autograd.Function)
        for each in value.__mro__:
            if trusted.is_machinery(each.__module__):
                continue
            own = not lookups.is_of_library(each)
            lookups.functions_of(each, own or of_autograd, self._touch_member)
            if of_autograd:
                self._class_as_it_is(each, True)
            else:
                self.namespace(each.__qualname__, each.__dict__, kind=each)

    def touch_compiled(self, value: Any, name: str) -> None:
        """A compiled function inside another: its own code runs."""
        self.touch(value.fn, name)

    def touch_environment(self, value: Any, name: str) -> None:
        """The environment of the process."""
        self.touch_container(value._data, name)

    def touch_hidden(self, value: Any, name: str) -> None:
        """What no recording can see into."""
        kind = type(value)
        self.refuse(f"reads {name}, of class {kind.__module__}.{kind.__qualname__}, {_NOT_TO_SEE}")

    def touch_object(self, value: Any, name: str) -> None:
        """An object of a class of Python's."""
        self._touch_instance(value, name)
        attributes = lookups.attributes_of(value)
        if attributes is not None and trusted.is_whole(type(value)):
            self.touch(attributes, name)

    def _touch_instance(self, value: Any, name: str) -> None:
        kind = type(value)
        self._names[id(value)] = name
        attributes = lookups.attributes_of(value)
        if attributes is not None:
            self.namespace(name, attributes, not trusted.is_machinery(kind.__module__))
        for key in lookups.slots_of(kind):
            self.slots.append(Attribute(value, key, getattr(value, key, MISSING), f"{name}.{key}"))
        if not trusted.is_machinery(kind.__module__):
            if not self._weakly:
                self.place(Attribute(value, "__class__", kind, f"the class of {name}"))
            self._special_methods(kind)

    def _special_methods(self, kind: type) -> None:
        """Methods that Python calls by itself: operators, ``__getattr__``, ``__call__`` …; that there are no others."""
        if id(kind) in self._kinds:
            return
        self._kinds.add(id(kind))
        self.known.setdefault(id(kind), kind)
        for home in kind.__mro__:
            if trusted.is_machinery(home.__module__):
                continue
            lookups.functions_of(home, False, self._touch_member)
            if not lookups.is_of_library(home):
                self._class_as_it_is(home, False)

    def _class_as_it_is(self, home: type, everything: bool) -> None:
        """The functions of a class stay, and no special method is added."""
        before = self.namespace(home.__qualname__, home.__dict__, kind=home)
        for key, value in before.before.items():
            special = key.startswith("__") and key.endswith("__")
            if isinstance(value, types.FunctionType if not everything else lookups.FUNCTIONS) and (special or everything):
                self.place(Cell(home.__dict__, key, value, f"{home.__qualname__}.{key}"))
        table = self.tables.setdefault(
            id(home.__dict__), Table(home.__qualname__, home.__dict__, frozenset(before.before), set())
        )
        if table.names is not None:
            table.names |= lookups.SPECIAL - before.before.keys()

    def touch_module(self, module: torch.nn.Module, name: str) -> None:
        """A module of torch's: its tables, its hooks, its ``forward``."""
        self.modules[id(module)] = name, module
        self._touch_instance(module, name)
        label = name or type(module).__name__
        for each in _TABLES:
            table = module.__dict__.get(each)
            if table is not None:
                self.namespace(label, table)
                self._names[id(table)] = name
        for each in _HOOKS:
            self._hook_table(f"hooks of {label}", module.__dict__.get(each, {}))
        self.of_object(module, "forward")

    def _hook_table(self, name: str, hooks: Any) -> None:
        self.known.setdefault(id(hooks), hooks)
        self.containers.append(Container(hooks, items_of(hooks), name))
        for hook in hooks.values():
            self.touch(hook, name)


_WALKS = frozenset(
    "modules named_modules children named_children parameters named_parameters buffers named_buffers state_dict "
    "get_submodule get_parameter get_buffer apply train eval zero_grad requires_grad_ to half float double cuda".split()
)
"""Methods of modules that read the tables of a whole tree."""
_MOST_BYTES = 1 << 16
_QUIET = frozenset({*_SYMBOLIC[1:], str, int, float, bool, list, dict, tuple, set, torch.Size, type(None), bytes, slice})


@contextmanager
def _nothing_there() -> Iterator[None]:
    try:
        yield
    except ValueError:  # an empty closure cell
        pass


def _decimal_context() -> str:
    now = decimal.getcontext()
    traps = sorted(each.__name__ for each, on in now.traps.items() if on)
    return f"{now.prec} {now.rounding} {now.Emin} {now.Emax} {now.capitals} {now.clamp} {traps}"


def _refers_to(reference: Callable[[], Any], target: int) -> bool:
    return id(reference()) == target


def _items_of_proxy(proxy: Mapping[Any, Any]) -> str:
    return repr([(key, id(value)) for key, value in proxy.items()])


# -- by the class of a value: what is done when it is loaded, and when an attribute of it is


def _handler_for(kind: type) -> Callable[[Recorder, Any, str], None] | None:
    """What is done with a value of a class that was loaded; None for nothing."""
    if issubclass(kind, _SYMBOLIC) or kind in PLAIN or issubclass(kind, types.ModuleType):
        return None
    for base, handler in _BY_CLASS:
        if issubclass(kind, base):
            return handler
    if kind.__module__ == "symshape.frontends.compile":
        return Recorder.touch_compiled
    if kind.__module__.partition(".")[0] == "symshape":
        return None
    if kind.__module__ == "numpy" and kind.__qualname__ == "ndarray":
        return Recorder.touch_array
    if trusted.is_hidden(kind):
        return Recorder.touch_hidden
    if trusted.is_of_c(kind) and kind is not types.SimpleNamespace:
        return None
    return Recorder.touch_object


_BY_CLASS: tuple[tuple[Any, Callable[[Recorder, Any, str], None]], ...] = (
    (torch.Tensor, Recorder.touch_tensor),
    (torch.nn.Module, Recorder.touch_module),
    (types.FunctionType, Recorder.touch_function),
    (types.MethodType, Recorder.touch_method),
    (functools.partial, Recorder.touch_partial),
    (functools._lru_cache_wrapper, Recorder.touch_memo),
    (_FUNCTIONS_OF_C, Recorder.touch_c_function),
    (type, Recorder.touch_class),
    (os._Environ, Recorder.touch_environment),
    (torch.Generator, Recorder.touch_generator),
    ((tuple, frozenset), Recorder.touch_tuple),
    (_CONTAINERS, Recorder.touch_container),
    (types.MappingProxyType, Recorder.touch_mapping_proxy),
    (contextvars.ContextVar, Recorder.touch_context_variable),
    (weakref.ref, Recorder.touch_weak),
    ((staticmethod, classmethod, property, functools.cached_property), Recorder._touch_member),
)
_handlers: dict[type, Callable[[Recorder, Any, str], None] | None] = {}


def _reader_for(kind: type) -> Callable[[Recorder, Any, str], None]:
    """What is done when an attribute of a value of a class is read."""
    if issubclass(kind, SymbolicTensor):
        return Recorder.of_every_tensor
    if issubclass(kind, torch.Tensor):
        return Recorder.of_tensor
    if issubclass(kind, types.ModuleType):
        return Recorder.of_python_module
    if issubclass(kind, type):
        return Recorder.of_class
    if kind is super:
        return Recorder.of_super
    if kind is types.FunctionType:
        return Recorder.of_function
    if kind.__module__.partition(".")[0] == "symshape" or (trusted.is_of_c(kind) and kind is not types.SimpleNamespace):
        return Recorder.of_nothing
    return Recorder.of_object


_readers: dict[type, Callable[[Recorder, Any, str], None]] = {}


# -- what instrumented code calls

_active: Recorder | None = None


@contextmanager
def _here() -> Iterator[Recorder | None]:
    """The recording of this thread, if there is one, and if this is not a load that the recording itself makes."""
    active = _active
    if active is None or active.busy or active.thread != threading.get_ident():
        yield None
        return
    active.busy = True
    try:
        yield active
    finally:
        active.busy = False


def _is_recorded() -> bool:
    active = _active
    return active is not None and not active.busy and active.thread == threading.get_ident()


def _enter(code: types.CodeType) -> None:
    with _here() as here:
        if here is not None:
            here.enter(code)


def _load_global(name: str) -> Any:
    frame = sys._getframe(1)
    names, builtins = frame.f_globals, frame.f_builtins
    if _is_recorded():
        with _here() as here:
            if here is not None:
                here.asker = frame.f_code.co_filename
                here.load_global(name, names, builtins)
        value = names[name] if name in names else builtins.get(name, MISSING)
        value = _substitutes.of(value)
    else:
        value = names[name] if name in names else builtins.get(name, MISSING)
    if value is MISSING:
        raise NameError(f"name {name!r} is not defined", name=name)
    return value


def _import(module: Any, name: str) -> Any:
    with _here() as here:
        if here is not None:
            here.load_module(module, name)
    return module


def _read(owner: Any, name: str) -> None:
    with _here() as here:
        if here is not None:
            here.load_attr(owner, name)


def _load_attr(owner: Any, name: str) -> Any:
    if not _is_recorded():
        return getattr(owner, name)
    with _here() as here:
        if here is not None:
            here.asker = sys._getframe(1).f_code.co_filename
            here.load_attr(owner, name)
    value = getattr(owner, name)
    if name == "__getattribute__":
        return _Reading(value, owner)
    return _substitutes.of(value)


class _Reading:
    """``object.__getattribute__`` as a class's own look-up calls it: by names that no code spells."""

    __slots__ = ("_owner", "_read")

    def __init__(self, read: Callable[..., Any], owner: Any) -> None:
        self._read, self._owner = read, owner

    def __call__(self, *args: Any) -> Any:
        if len(args) == 2:
            _read(*args)
        elif not isinstance(self._owner, type):
            _read(getattr(self._read, "__self__", self._owner), args[0])
        return self._read(*args)


def _load_super(kind: Any, start: Any, owner: Any, name: str) -> Any:
    return _load_attr(kind(start, owner), name)


def _imported(module: Any, value: Any, name: str) -> Any:
    if not _is_recorded():
        return value
    _read(module, name)
    return _substitutes.of(value)


def _store_attr(owner: Any, name: str) -> None:
    """A property that is set runs code of its own."""
    with _here() as here:
        if here is not None and not isinstance(owner, (type, types.ModuleType)):
            here.setter(owner, name)


def _is_same(one: Any, other: Any) -> bool:
    return one is other


def _listed(owner: Any) -> None:
    with _here() as here:
        if here is not None:
            here.listed(owner)


def _printed() -> None:
    with _here() as here:
        if here is not None:
            here.tells("prints")


def _answered(question: Callable[[], Any], answer: Any, name: str) -> None:
    with _here() as here:
        if here is not None:
            here.place(Answer(question, answer, name))


_substitutes = Substitutes(_read, _listed, _answered, _printed)
HOOKS = Hooks(_enter, _load_global, _load_attr, _load_super, _import, _imported, _store_attr, _is_same)
