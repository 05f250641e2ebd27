"""Record the reads of global names and attributes, in a way that depends on the class of the
owner.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import logging
import os
import sys
import types
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from symshape.errors import Reason
from symshape.tracing.intercept.exchanges import StandIn
from symshape.tracing.state import compiled
from symshape.tracing.state.instrument import stores, trusted_code
from symshape.tracing.state.record import loads, process_groups
from symshape.tracing.state.record.class_lookups import (
    absent,
    absent_here,
    absent_in_bases,
    attributes_of,
    bases,
    class_entry,
    look_up,
    special_methods,
    touch_member,
)
from symshape.tracing.state.record.places import MISSING, PLAIN, Answer, Attribute, Cell, Keys
from symshape.tracing.state.record.reads import Namespace
from symshape.tracing.state.record.recorder import NOT_TO_SEE, TABLES, Handler, Member, Recorder
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.user_code import is_library

# -- Record the attributes that code reads of tensors: those set on a tensor, and those of its
# class.
OF_TENSORS = 0  # no object has this id


def of_tensor(recorder: Recorder, owner: torch.Tensor, key: str) -> None:
    """Record the read of a tensor attribute: one set on the tensor, a method of tensors, or a
    subclass's attribute.
    """
    of_every_tensor(recorder, owner, key)
    if not trusted_code.is_of_machinery(kind := type(owner)):
        special_methods(recorder, kind)
        look_up(recorder, kind, key, kind.__qualname__)
    elif kind is not torch.Tensor and not hasattr(torch.Tensor, key):
        _in_class(recorder, kind, key, kind.__qualname__)
    name = recorder.tensors.get(id(owner), "a tensor")
    before = recorder.namespace(name, owner.__dict__)
    if key in owner.__dict__ or not hasattr(torch.Tensor, key):
        recorder.attribute(owner, "__dict__", owner.__dict__, f"the attributes of {name}")
    if key in owner.__dict__:
        recorder.entry(owner.__dict__, key, f"{name}.{key}", before)
    elif not hasattr(torch.Tensor, key):
        recorder.absent(name, owner.__dict__, key, before)


def _in_class(recorder: Recorder, kind: type, key: str, name: str) -> None:
    """Record whether a class of torch, such as ``Parameter``, has an attribute."""
    before = recorder.class_namespace(kind)
    if key in before.owner:
        recorder.place(Cell(before.owner, key, before.owner[key], f"{name}.{key}"))
    else:
        recorder.absent(name, before.owner, key, before)


def of_every_tensor(recorder: Recorder, owner: torch.Tensor, key: str) -> None:
    """Record a method of ``torch.Tensor``, so that a later replacement of the method is noticed."""
    if (OF_TENSORS, key) not in recorder.seen:
        recorder.seen[OF_TENSORS, key] = None
        _in_class(recorder, torch.Tensor, key, "Tensor")


_STATE_OF_A_GENERATOR = frozenset(
    {"initial_seed", "get_state", "get_offset", "graphsafe_get_state", "clone_state"}
)
_SET_OF_FUNCTIONS = frozenset(
    trusted_code.words(
        "__name__ __qualname__ __module__ __doc__ __annotations__ __defaults__ __kwdefaults__"
    )
)
"""The attributes of functions that can be assigned, and therefore are recorded as slots."""
_OF_CLASSES = frozenset(("__mro__", "__bases__", "__base__", "__name__", "__qualname__"))
"""The attributes of classes that Python itself keeps outside of their dictionaries."""
_OF_METHODS = frozenset(vars(types.MethodType))
_NAMES_OF_FUNCTIONS = frozenset(("__globals__", "__builtins__"))
"""The attributes of functions that hold the dictionaries in which their code looks up global
names.
"""
QUIET: frozenset[type] = frozenset(
    (
        *(torch.SymInt, torch.SymFloat, torch.SymBool, torch.Size, type(None)),
        *(str, int, float, bool, list, dict, tuple, set, bytes, slice),
    )
)
"""The classes whose objects' attributes need no record."""
_TOLD_EACH_TIME = frozenset(map(id, (sys, warnings, decimal)))
"""The modules whose loads must be recorded each time: they depend on the caller, or on a state that
may change.
"""


def load_global(
    recorder: Recorder, name: str, namespace: dict[str, Any], builtins: dict[str, Any]
) -> None:
    """Record that a global name is about to be read for the first time, or perhaps changed by
    another thread.
    """
    if trusted_code.is_trusted(recorder.asker):
        _of_trusted(recorder, namespace.get(name, builtins.get(name)), name)
        return
    before = recorder.namespace("", namespace)
    if name in namespace:
        if _is_registry(namespace[name]) and is_library(recorder.asker):
            _registry(recorder, namespace[name], name)
        recorder.entry(namespace, name, name, before)
        return
    recorder.absent("", namespace, name, before)
    if name in trusted_code.BUILTINS:
        recorder.touch(builtins[name], name)
    elif name in builtins:
        recorder.entry(builtins, name, name, recorder.namespace("builtins", builtins))
    else:
        recorder.absent("builtins", builtins, name, recorder.namespace("builtins", builtins))


_CALLED = (type, types.FunctionType, types.BuiltinFunctionType)


def _of_trusted(recorder: Recorder, value: Any, name: str) -> None:
    """Record a global that trusted code reads: only what a function reads or calls may change."""
    if isinstance(value, _CALLED):
        recorder.touch(value, name)


def _is_registry(value: Any) -> bool:
    """Return whether a value is of a subclass of ``dict``, whose look-ups have no record by key."""
    return isinstance(value, dict) and type(value) is not dict


def _registry(recorder: Recorder, value: dict[Any, Any], name: str) -> None:
    """Record a registry among a library's globals: its items must stay, but new items may be
    registered.  (Transformers registers each class of models when the first one is made.)
    """
    if id(value) in recorder.known:
        return
    recorder.known[id(value)] = value
    recorder.namespace(name, value).open = True
    for key, item in list(dict.items(value)):
        recorder.place(Cell(value, key, item, recorder.item(name, key)))
        recorder.touch(item, recorder.item(name, key), True)


def load_module(recorder: Recorder, module: Any, name: str) -> None:
    """Record that a module was imported while the function ran."""
    full = name if name in sys.modules else getattr(module, "__name__", name)
    if sys.modules.get(full) is module and not trusted_code.is_machinery(full):
        recorder.place(Cell(sys.modules, full, module, f"the module {full}"))


def missing_modules(recorder: Recorder) -> None:
    """Record the modules that could not be imported."""
    for full in recorder.imported:
        if full not in sys.modules:
            recorder.place(Cell(sys.modules, full, MISSING, f"the module {full}"))


def load_attr(recorder: Recorder, owner: Any, key: str) -> None:
    """Record that an attribute is about to be read."""
    kind = type(owner)
    if kind not in QUIET:
        reader_of(kind)(recorder, owner, key)


def reader_of(kind: type) -> Handler:
    """Return the handler that records reads of attributes of a class's objects."""
    reader = _readers.get(kind)
    if reader is None:
        reader = _readers[kind] = _reader_for(kind)
    return reader


def setter(recorder: Recorder, owner: Any, key: str) -> None:
    """Record that an attribute is about to be set; a property's setter runs code, which is recorded
    as well.
    """
    stores.attribute(recorder, owner, key)
    if isinstance(owner, (type, types.ModuleType)):
        return
    # so that a property that is added later is noticed
    member = member_of(recorder, type(owner), key)
    if member.first:
        touch_member(recorder, member.found, f"{type(owner).__qualname__}.{key}")


def listed(recorder: Recorder, owner: Any) -> None:
    """Record that all attributes of an object, or all environment variables, are about to be
    listed.
    """
    if owner is os.environ:
        recorder.touch(os.environ._data, "os.environ")
        return
    recorder.touch(owner, type(owner).__name__)
    if isinstance(owner, type):
        for each in owner.__mro__:
            if not trusted_code.is_machinery(each.__module__):
                held = recorder.class_namespace(each)
                names = f"the names in {each.__qualname__}"
                recorder.place(Keys(held.owner, tuple(held.before), names))
        return
    attributes = attributes_of(owner)
    if attributes is not None:
        name = recorder.names.get(id(owner), type(owner).__name__)
        before = recorder.namespace(name, attributes)
        recorder.place(Keys(attributes, tuple(before.before), f"the attributes of {name}"))


def of_memo(recorder: Recorder, owner: Any, key: str) -> None:
    """Record an attribute of an ``lru_cache`` function; refuse its statistics, which change with
    every call.
    """
    if key.startswith("cache_"):
        recorder.refuse(
            f"calls {key} of the lru_cache of {owner.__name__}, {NOT_TO_SEE}", Reason.MEMO
        )


def of_stand_in(recorder: Recorder, owner: StandIn, key: str) -> None:
    """Record the attribute of the original function that a stand-in replaces in traced code."""
    load_attr(recorder, object.__getattribute__(owner, "original"), key)


def of_generator(recorder: Recorder, owner: torch.Generator, key: str) -> None:
    """Refuse the seed and the state of a random generator, which a trace replaces."""
    if key in _STATE_OF_A_GENERATOR:
        recorder.refuse(f"reads {key} of a random generator, {NOT_TO_SEE}", Reason.RANDOM_NUMBERS)


def of_nothing(recorder: Recorder, owner: Any, key: str) -> None:
    """Record nothing: the attribute is of a value that never changes, or of a method of such a
    value.
    """


def of_python_module(recorder: Recorder, owner: types.ModuleType, key: str) -> None:
    """Record the read of an attribute of a Python module."""
    attributes = owner.__dict__
    name = f"{owner.__name__}.{key}"
    if trusted_code.is_trusted(recorder.asker):
        process_groups.notice(recorder, owner.__name__, key)
        _of_trusted(recorder, attributes.get(key), name)
        return
    if not trusted_code.is_machinery(owner.__name__):
        recorder.attribute(
            owner, "__class__", type(owner), f"the class of the module {owner.__name__}"
        )
    process_groups.notice(recorder, owner.__name__, key)
    if owner is sys and key in ("stdout", "stderr"):
        recorder.tells("writes to the screen")
    if owner is warnings and key in trusted_code.WARNING:
        recorder.tells("warns")
    if owner is decimal:
        recorder.place(Answer(decimal_context, decimal_context(), "the context of decimal"))
    if key == "__dict__":
        recorder.refuse(
            f"lists the names of the module {owner.__name__}, {NOT_TO_SEE}", Reason.UNCOMPARED
        )
    if key in attributes and str(getattr(attributes[key], "__module__", "")).startswith(
        "symshape."
    ):
        return  # the trace's substitute for a function of torch
    before = recorder.namespace(owner.__name__, attributes)
    if (
        key not in attributes
        and type(owner).__module__ == "torch._ops"
        and hasattr(owner, key)
        and key in attributes
    ):
        # operators are looked up when first asked for, and stored
        before.before[key] = attributes[key]
    if key in attributes:
        recorder.entry(attributes, key, name, before)
        if (
            recorder.alone
            and (id(attributes), key) in recorder.seen
            and id(owner) not in _TOLD_EACH_TIME
        ):
            recorder.told[id(owner), key] = owner
    # torch.backends and the like: flags behind descriptors
    elif type(owner) is not types.ModuleType:
        of_flags(recorder, owner, key)
    else:
        recorder.absent(owner.__name__, attributes, key, before)
        if "__getattr__" in attributes:
            recorder.entry(attributes, "__getattr__", f"{owner.__name__}.__getattr__", before)
        else:
            recorder.absent(owner.__name__, attributes, "__getattr__", before)


def of_flags(recorder: Recorder, owner: Any, key: str) -> None:
    """Record an attribute of a part of torch.backends: a flag that C++ stores, or another part."""
    value, name = (
        getattr(owner, key, MISSING),
        f"{getattr(owner, '__name__', type(owner).__name__)}.{key}",
    )
    if isinstance(value, PLAIN):
        recorder.place(Answer(functools.partial(getattr, owner, key, MISSING), value, name, key))
    recorder.touch(value, name)


def of_class(recorder: Recorder, owner: type, key: str) -> None:
    """Record the read of an attribute of a class."""
    process_groups.notice(recorder, owner.__module__, key)
    if key == "__subclasses__":
        recorder.refuse(f"reads {owner.__qualname__}.{key}, {NOT_TO_SEE}", Reason.UNCOMPARED)
    refuse_clock(recorder, owner.__mro__, key)
    if key == "__dict__":
        touch_class_whole(recorder, owner, owner.__qualname__)
        return
    if key in _OF_CLASSES:
        if not trusted_code.is_of_machinery(owner):
            recorder.attribute(owner, key, getattr(owner, key), f"{key} of {owner.__qualname__}")
        return
    if look_up(recorder, owner, key, owner.__qualname__) is MISSING:
        absent(recorder, owner, key, owner.__qualname__)
    if not trusted_code.is_of_machinery(owner):
        recorder.attribute(owner, "__class__", type(owner), f"the class of {owner.__qualname__}")
    if type(owner) is not type:
        look_up(recorder, type(owner), key, type(owner).__qualname__)


def refuse_clock(recorder: Recorder, order: Sequence[type], key: str) -> None:
    """Refuse ``now`` and the like of ``datetime``, looked up in classes in this order."""
    if key in trusted_code.CHANGING_METHODS:
        home = next((each for each in order if key in each.__dict__), None)
        if home is not None and home.__module__ == "datetime":
            recorder.refuse(f"reads {home.__qualname__}.{key}, {NOT_TO_SEE}", Reason.UNCOMPARED)


def of_date(recorder: Recorder, owner: datetime.date, key: str) -> None:
    """Record the read of an attribute of a date; refuse its class's methods that read the clock."""
    refuse_clock(recorder, type(owner).__mro__, key)
    if not trusted_code.is_of_c(type(owner)):
        of_object(recorder, owner, key)


def touch_class_whole(recorder: Recorder, kind: type, name: str) -> None:
    """Record the names in a class, without its bases, and their values: its ``__dict__`` is
    read.
    """
    if trusted_code.is_of_machinery(kind):
        return
    before = recorder.class_namespace(kind)
    for key, found in before.before.items():
        recorder.place(Cell(before.owner, key, found, f"{name}.{key}"))
        touch_member(recorder, found, f"{name}.{key}")
    recorder.place(Keys(before.owner, tuple(before.before), f"the names in {name}"))


def of_super(recorder: Recorder, owner: Any, key: str) -> None:
    """Record an attribute that ``super()`` finds after a class in the method resolution order."""
    start, kind = owner.__thisclass__, owner.__self_class__
    if (id(start), id(kind), key) in recorder.supers:
        return
    order = kind.__mro__
    refuse_clock(recorder, order[order.index(start) + 1 :], key)
    bases(recorder, kind)
    for each in order[order.index(start) + 1 :]:
        if key in each.__dict__:
            if each is torch.nn.Module:
                stores.by_module_method(recorder, owner.__self__, key)
            else:
                recorder.supers[id(start), id(kind), key] = start, kind
            class_entry(recorder, each, key, f"{each.__qualname__}.{key}")
            return
        absent_here(recorder, each, key, f"{each.__qualname__}.{key}")


def of_function(recorder: Recorder, owner: types.FunctionType, key: str) -> None:
    """Record the read of an attribute of a function."""
    name = f"{owner.__name__}.{key}"
    attributes = owner.__dict__
    before = recorder.namespace(owner.__name__, attributes)
    if key in attributes or not hasattr(types.FunctionType, key):
        recorder.attribute(owner, "__dict__", attributes, f"the attributes of {owner.__name__}")
    if key in attributes:
        recorder.entry(attributes, key, name, before)
    elif key == "__dict__":
        recorder.touch(attributes, owner.__name__, True)
    elif key in _SET_OF_FUNCTIONS:
        read_slot(recorder, owner, key, name)
    elif key == "__closure__":
        stores.cells_of(recorder, owner)
    elif key in _NAMES_OF_FUNCTIONS and id(owner) in recorder.known:
        recorder.refuse(
            f"reads {name}, in which any global name can be looked up or set, {NOT_TO_SEE}",
            Reason.UNCOMPARED,
        )
    elif (
        key == "__code__" and (id(owner), key) not in recorder.seen and id(owner) in recorder.known
    ):
        recorder.attribute(owner, key, owner.__code__, name)
    elif not hasattr(types.FunctionType, key):
        recorder.absent(owner.__name__, attributes, key, before)


def of_method(recorder: Recorder, owner: types.MethodType, key: str) -> None:
    """Record the read of an attribute of a bound method, which is an attribute of its function."""
    if key not in _OF_METHODS:
        load_attr(recorder, owner.__func__, key)


def _of_object(recorder: Recorder, owner: Any, key: str) -> None:
    """Record the read of an attribute of an object of a Python class."""
    kind = type(owner)
    member = member_of(recorder, kind, key)
    if member.logs:
        recorder.tells("writes to a log, or reads the settings of logging")
    itself = id(owner)
    # made while tracing: its contents were loaded, or made, as well
    if itself not in recorder.known:
        return
    name = recorder.names.get(itself, kind.__name__)
    full = f"{name}.{key}" if name else key
    if member.is_slot:
        read_slot(recorder, owner, key, full)
        return
    if member.is_cached:
        stores.attribute(recorder, owner, key)
    attributes = attributes_of(owner)
    if attributes is None or (member.first and key != "__dict__"):
        return
    if key == "__dict__":
        recorder.touch(attributes, name, True)
        if recorder.alone:
            recorder.told[itself, key] = owner
        return
    before = recorder.namespaces.get(id(attributes))
    if before is None:
        before = recorder.namespace(name, attributes, not trusted_code.is_of_machinery(kind))
    if key in attributes:
        recorder.entry(attributes, key, full, before)
    elif member.of_module:
        if not _of_module(recorder, owner, key, member.found, name, before):
            return
    else:
        recorder.absent(name or kind.__name__, attributes, key, before)
    if recorder.alone and not member.logs and (id(attributes), key) in recorder.seen:
        recorder.told[itself, key] = owner


def member_of(recorder: Recorder, kind: type, key: str) -> Member:
    """Return the result of looking up an attribute of a class's objects in the class."""
    return recorder.members.get((id(kind), key)) or _member(recorder, kind, key)


def _member(recorder: Recorder, kind: type, key: str) -> Member:
    found = look_up(recorder, kind, key, kind.__qualname__)
    if found is MISSING and id(kind) in recorder.kinds:  # all names in it are compared
        absent_in_bases(recorder, kind, key, kind.__qualname__)
    elif found is MISSING:
        absent(recorder, kind, key, kind.__qualname__)
    first = found is not MISSING and hasattr(type(found), "__set__")
    is_cached = isinstance(found, functools.cached_property)
    of_module = issubclass(kind, torch.nn.Module)
    logs = key in trusted_code.LOGGING and issubclass(kind, (logging.Logger, logging.LoggerAdapter))
    walks = key in trusted_code.WALKS or (
        found is not MISSING and found is torch.nn.Module.__dict__.get(key)
    )
    member = Member(
        kind,
        found,
        first,
        first and isinstance(found, types.MemberDescriptorType),
        is_cached,
        of_module,
        logs,
        not (first or is_cached or logs or key == "__dict__" or (of_module and walks)),
    )
    recorder.members[id(kind), key] = member
    return member


def _of_module(
    recorder: Recorder, owner: torch.nn.Module, key: str, found: Any, name: str, before: Namespace
) -> bool:
    """Record the read of a module's method, parameter, buffer or submodule; return whether once is
    enough.
    """
    attributes = owner.__dict__
    label = name or type(owner).__name__
    recorder.absent(label, attributes, key, before)
    if found is not MISSING:
        own = found is torch.nn.Module.__dict__.get(key)
        if own:
            stores.by_module_method(recorder, owner, key)
        if key in trusted_code.WALKS:
            whole_tree(recorder, owner, name)
            for path, module in owner.named_modules() if key == "state_dict" else ():
                _stored_in_file(recorder, f"{name}.{path}".strip("."), module)
            return False
        return not own or key in trusted_code.READING_METHODS
    for each in TABLES:
        table = attributes.get(each)
        if table is None:
            continue
        then = recorder.namespaces.get(id(table)) or recorder.namespace(label, table)
        if key in table:
            recorder.entry(table, key, f"{name}.{key}" if name else key, then)
            return (id(table), key) in recorder.seen
        recorder.absent(label, table, key, then)
        if (id(table), key) not in recorder.seen:
            return False
    return True


def whole_tree(recorder: Recorder, owner: torch.nn.Module, name: str) -> None:
    """Record all modules in a module, with their parameters and buffers."""
    for path, module in owner.named_modules():
        _whole_module(recorder, f"{name}.{path}".strip("."), module)


def _whole_module(recorder: Recorder, name: str, module: torch.nn.Module) -> None:
    recorder.touch(module, name, True)  # a root, or an item of the tables below
    for each in TABLES:
        table = module.__dict__.get(each)
        if table is not None:
            recorder.touch(table, name, True)


_OF_STATE_DICT = ("_non_persistent_buffers_set", "_state_dict_hooks", "_state_dict_pre_hooks")


def _stored_in_file(recorder: Recorder, name: str, module: torch.nn.Module) -> None:
    """Record what decides which of a module's tensors its ``state_dict`` has."""
    attributes = module.__dict__
    for each in _OF_STATE_DICT:
        if each in attributes:
            recorder.place(Cell(attributes, each, attributes[each], f"{name}.{each}".strip(".")))
            recorder.touch(attributes[each], f"{name}.{each}".strip("."), True)


def read_slot(recorder: Recorder, owner: Any, key: str, name: str) -> None:
    """Record the read of an attribute that is stored in a slot."""
    value = getattr(owner, key, MISSING)
    noted = recorder.slots.get((id(owner), key))
    if noted is None or noted.value is value:
        recorder.place(Attribute(owner, key, value, name))
        recorder.touch(value, name, True)
    else:
        recorder.touch_made(value, name)


def decimal_context() -> str:
    """Return the settings of the current ``decimal`` context as text: results of ``decimal`` depend
    on them.
    """
    now = decimal.getcontext()
    traps = sorted(each.__name__ for each, on in now.traps.items() if on)
    return f"{now.prec} {now.rounding} {now.Emin} {now.Emax} {now.capitals} {now.clamp} {traps}"


def _reader_for(kind: type) -> Handler:
    for base, reader in _BY_CLASS:
        if issubclass(kind, base):
            return reader
    if kind.__module__.startswith("torch.backends"):
        return of_flags
    if kind.__module__.partition(".")[0] == "symshape" or (
        trusted_code.is_of_c(kind) and kind is not types.SimpleNamespace
    ):
        return of_nothing
    return of_object


_BY_CLASS: tuple[tuple[type, Handler], ...] = (
    (SymbolicTensor, of_every_tensor),
    (torch.Tensor, of_tensor),
    (types.ModuleType, of_python_module),
    (type, of_class),
    (functools._lru_cache_wrapper, of_memo),
    (torch.Generator, of_generator),
    (StandIn, of_stand_in),
    (super, of_super),
    (types.FunctionType, of_function),
    (types.MethodType, of_method),
    (datetime.date, of_date),
)
_readers: dict[type, Handler] = {}
of_object: Handler
if compiled.READS is None:
    of_object = _of_object
else:
    of_object = compiled.READS.of_object
    compiled.READS.setup(
        readers=_readers,
        load_attr=load_attr,
        load_global=load_global,
        of_object=_of_object,
        of_nothing=of_nothing,
        member=Member,
        member_of=_member,
        tables=TABLES,
        symbolic_tensor=SymbolicTensor,
        of_every_tensor=OF_TENSORS,
    )


# -- Record ``x.__dict__.get(name)``, ``x.__dict__["name"]`` and ``name in x.__dict__`` as look-ups
# of one attribute.
#
# Some classes read their own dictionary in this way at every look-up
# (``super().__getattribute__("__dict__").get(...)``).
class Table:
    """A stand-in for the ``__dict__`` of an object between two instructions, the second of which
    reads an entry.
    """

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = owner


def has_table(recorder: Recorder, owner: Any) -> bool:
    """Return whether an object's ``__dict__`` is the plain dictionary of its attributes."""
    kind = type(owner)
    if issubclass(kind, type):  # ``isinstance`` would ask the object's own ``__getattribute__``
        return True
    if kind in loads.QUIET or loads.reader_of(kind) is not loads.of_object:
        return False
    found = loads.member_of(recorder, kind, "__dict__").found
    return isinstance(found, types.GetSetDescriptorType) and attributes_of(owner) is not None


def of_table(recorder: Recorder, owner: Any, key: str) -> None:
    """Record the read of one entry of an object's ``__dict__``, which bypasses the object's
    class.
    """
    if issubclass(type(owner), type):
        if not trusted_code.is_of_machinery(owner):
            then, label = recorder.class_namespace(owner), f"{owner.__qualname__}.{key}"
            recorder.place(Cell(then.owner, key, then.before.get(key, MISSING), label))
            if key in then.before:
                touch_member(recorder, then.before[key], label)
        return
    if id(owner) not in recorder.known:  # made while tracing
        return
    kind, attributes = type(owner), attributes_of(owner)
    assert attributes is not None
    name = recorder.names.get(id(owner), kind.__name__)
    before = recorder.namespaces.get(id(attributes))
    if before is None:
        before = recorder.namespace(name, attributes, not trusted_code.is_of_machinery(kind))
    if key in attributes:
        recorder.entry(attributes, key, f"{name}.{key}" if name else key, before)
    else:
        recorder.absent(name or kind.__name__, attributes, key, before)
