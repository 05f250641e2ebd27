"""The hooks that instrumented code calls; they report each load to the one recorder, if it records
this thread.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules import module as torch_modules

from symshape.tracing.intercept.exchanges import standing_for
from symshape.tracing.intercept.python_numbers import numpy_functions
from symshape.tracing.intercept.python_numbers.builtins import (
    CALLED,
    contains,
    dispatching,
    plain_numel,
)
from symshape.tracing.intercept.python_numbers.identity import class_of, subject_of
from symshape.tracing.state import compiled
from symshape.tracing.state.instrument import object_readers, stores
from symshape.tracing.state.instrument.rewriter import Hooks, instrumented, original_of
from symshape.tracing.state.instrument.stores import is_alone
from symshape.tracing.state.instrument.substitutes import Substitutes, preparations
from symshape.tracing.state.instrument.trusted_code import is_trusted
from symshape.tracing.state.record import loads, whole
from symshape.tracing.state.record.class_lookups import attributes_of, matched, of_made
from symshape.tracing.state.record.loads import Table, has_table, of_table
from symshape.tracing.state.record.places import MISSING, Answer
from symshape.tracing.state.record.recorder import Recorder
from symshape.tracing.state.record.values import handler_for, hook_table
from symshape.user_code import is_library

_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_parameter_registration_hooks",
    "_global_buffer_registration_hooks",
    "_global_module_registration_hooks",
)
_active: Recorder | None = None


def recorder_of(
    fn: Callable[..., Any],
    constants: Iterable[Any] = (),
    classes: Iterable[type] = (),
    *,
    serves: bool = True,
    stored: bool = False,
) -> Recorder:
    """Return a recording of ``fn``, called with ``constants`` and objects of ``classes``; see
    :class:`Recorder`.

    A ``stored`` program may serve another process, where the contents of every ``lru_cache`` are
    unknown.
    """
    recorder = Recorder(fn, constants, classes, HOOKS, handler_for, serves=serves)
    recorder.stays_here = serves and not stored
    recorder.on_exchange = _exchange
    return recorder


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Return a context in which the code that this thread runs is recorded."""
    global _active
    outer, _active = _active, recorder
    recorder.alone = is_alone()
    if "numpy" in sys.modules:
        _instead.update(numpy_functions.functions())
    _instead.update(preparations(_read))
    try:
        for name in _GLOBAL_HOOKS:
            hook_table(recorder, "global hooks of modules", getattr(torch_modules, name))
        fn = recorder.root
        recorder.touch(
            fn, "" if isinstance(fn, torch.nn.Module) else getattr(fn, "__name__", "the function")
        )
        with recorder.weak():  # an argument's cache entry is evicted when the argument is freed
            for i, constant in enumerate(recorder.constants):
                recorder.touch(constant, f"argument{i}")
        for each in recorder.classes:
            of_made(recorder, each)
        yield
        loads.missing_modules(recorder)
    finally:
        _active = outer
        with_their_own_code(recorder)


def with_their_own_code(recorder: Recorder) -> None:
    """Restore the original code of the functions that a recording instrumented, and undo its
    substitutions.

    A function that has other code by now was written without a hook: by code that no hook sees, or
    by another thread. The trace is then refused.  The code that another thread wrote stays.
    """
    alone = recorder.alone and is_alone()
    for function, code in reversed(recorder.swapped):
        now = original_of(function.__code__, HOOKS)
        function.__code__ = code if alone or now is code else now
        if now is not code:
            recorder.refusals.append(stores.not_repeated(function, "__code__"))
    recorder.swapped.clear()
    while recorder.exchanged:
        recorder.exchanged[-1]()  # called before it is popped: an interrupt may come in between
        recorder.exchanged.pop()


def _is_recorded() -> bool:
    """Return whether this thread records, and the load is not one that the recording itself
    makes.
    """
    active = _active
    return active is not None and not active.busy and active.thread == threading.get_ident()


def tell(what: Callable[..., None], *args: Any, asker: str = "") -> None:
    """Call ``what`` with the recording of this thread, if there is one."""
    active = _active
    if active is None or active.busy or active.thread != threading.get_ident():
        return
    active.busy = True
    if asker:
        active.asker = asker
    try:
        what(active, *args)
    finally:
        active.busy = False


def _enter(code: types.CodeType) -> None:
    active = _active
    if active is not None and id(code) in active.functions:
        tell(Recorder.enter, code)


def _load_global(name: str) -> Any:
    frame = sys._getframe(1)
    names = frame.f_globals
    active = _active
    recorded = active is not None and not active.busy and active.thread == threading.get_ident()
    if (
        active is not None
        and recorded
        and ((id(names), name) not in active.seen or not active.alone)
    ):
        active.busy, active.asker = True, frame.f_code.co_filename
        try:
            loads.load_global(active, name, names, frame.f_builtins)
        finally:
            active.busy = False
    value = names[name] if name in names else frame.f_builtins.get(name, MISSING)
    if value is MISSING:
        raise NameError(f"name {name!r} is not defined", name=name)
    return _instead.get(id(value), value) if recorded else value


def _load_attr(owner: Any, name: str) -> Any:
    active = _active
    if active is None or active.busy or active.thread != threading.get_ident():
        return getattr(owner, name)
    if type(owner) not in loads.QUIET and (id(owner), name) not in active.told:
        active.busy, active.asker = True, sys._getframe(1).f_code.co_filename
        try:
            loads.load_attr(active, owner, name)
        finally:
            active.busy = False
    if name in _WRAPPED:
        return _wrapped(owner, name)
    value = getattr(owner, name)
    return _instead.get(id(value), value)


_CODES = frozenset({"__code__", "gi_code", "cr_code", "ag_code"})
"""The attributes that hold the code of a function, a generator or a coroutine."""
_WRAPPED = {
    *("__class__", "__getattribute__", "__setattr__", "__delattr__", "numel"),
    *(*_CODES, *object_readers.NAMES),
}
_SPELLED_NOWHERE = frozenset({"__getattribute__", "__setattr__", "__delattr__"})


def _wrapped(owner: Any, name: str) -> Any:
    """Return an attribute whose name is in ``_WRAPPED``, or its substitute that records how the
    attribute is used.
    """
    if name == "__class__":
        return class_of(owner)
    value = _with_its_own_code(getattr(owner, name))
    if name in object_readers.NAMES and _is_recorded():
        value = _readers.method(owner, name, value)
    if name in _CODES:
        return _instead.get(id(value), value)
    if name == "numel":
        return functools.partial(plain_numel, owner) if type(owner) is torch.Size else value
    if name not in _SPELLED_NOWHERE:  # an lru_cache's method
        is_method = type(value) is types.MethodType and id(value.__func__) in _instead
        return (
            functools.partial(_instead[id(value.__func__)], value.__self__)
            if is_method
            else _substitutes.of(value)
        )
    if name == "__getattribute__":
        return _Reading(value, owner)
    note = _store_attr if name == "__setattr__" else _delete_attr
    return functools.partial(_stored, value, note)


def _with_its_own_code(value: Any) -> Any:
    """Return a value; for instrumented code, the program's own code instead."""
    return original_of(value, HOOKS) if type(value) is types.CodeType else value


def _table(owner: Any) -> Any:
    if _is_recorded() and type(owner) not in loads.QUIET:
        found: list[bool] = []
        tell(lambda recorder: found.append(has_table(recorder, owner)))
        if found == [True]:
            return Table(owner)
    return HOOKS.load_attr(owner, "__dict__")


def _table_item(owner: Any, key: str) -> Any:
    found = _table(owner)
    return _read_of(found, key) if type(found) is Table else found


def _read_of(table: Table, key: Any) -> dict[str, Any]:
    """Return the dictionary behind a table, and record the read of the entry ``key`` (of all, if it
    is no string).
    """
    is_class = issubclass(type(table.owner), type)
    attributes: dict[str, Any] | None = (
        table.owner.__dict__ if is_class else attributes_of(table.owner)
    )
    assert attributes is not None
    if type(key) is str:
        tell(of_table, table.owner, key, asker=sys._getframe(2).f_code.co_filename)
    else:
        HOOKS.load_attr(table.owner, "__dict__")
    return attributes


def _table_of(owner: Any) -> Any:
    read = HOOKS.load_attr(owner, "__getattribute__")
    plain = getattr(read, "read", None)
    if type(plain) is types.MethodWrapperType and plain == object.__getattribute__.__get__(
        plain.__self__
    ):
        return functools.partial(_table_or_attribute, plain.__self__, read)
    return read


def _table_or_attribute(owner: Any, read: Callable[[str], Any], key: str) -> Any:
    found = _table(owner) if _is_recorded() else None
    return found if type(found) is Table else read(key)


def _get_of(value: Any) -> Any:
    return functools.partial(_get, value) if type(value) is Table else HOOKS.load_attr(value, "get")


def _get(table: Table, *args: Any) -> Any:
    return _read_of(table, args[0] if args else None).get(*args)


def _load_super(kind: Any, start: Any, owner: Any, name: str) -> Any:
    return _load_attr(kind(start, owner), name)


def _read(owner: Any, name: str) -> None:
    active = _active
    if active is None or (id(owner), name) in active.told:
        return
    tell(loads.load_attr, owner, name)


class _Reading:
    """The ``object.__getattribute__`` that a class's own look-up calls, with names that no bytecode
    contains.
    """

    __slots__ = ("_owner", "read")

    def __init__(self, read: Callable[..., Any], owner: Any) -> None:
        self.read, self._owner = read, owner

    def __call__(self, *args: Any) -> Any:
        if len(args) == 2:
            _read(*args)
        elif not isinstance(self._owner, type):
            _read(getattr(self.read, "__self__", self._owner), args[0])
        return _with_its_own_code(self.read(*args))


def _stored(store: Callable[..., Any], note: Callable[[Any, str], None], *args: Any) -> Any:
    """Call the ``object.__setattr__`` (or ``__delattr__``) that a class calls, with names that no
    bytecode contains.
    """
    bound = getattr(store, "__self__", MISSING)
    owner, name = (bound, *args[:1]) if bound is not MISSING else (*args[:2],)
    if type(name) is str:
        note(owner, name)
    return store(*args)


def _importing(level: int, name: str) -> None:
    """Note a module that the user's code is about to import for the first time: that may fail."""
    active, frame = _active, sys._getframe(1)
    file = frame.f_code.co_filename
    if active is None or not _is_recorded() or is_library(file) or is_trusted(file):
        return
    package = frame.f_globals.get("__package__")
    if level and type(package) is not str:
        return  # the import raises
    full = importlib.util.resolve_name("." * level + name, package)
    if full not in sys.modules:
        active.imported.append(full)


def _importing_from(module: Any, name: str) -> None:
    """Record a name that a module does not have."""
    if not hasattr(module, name) and f"{getattr(module, '__name__', '')}.{name}" not in sys.modules:
        _read(module, name)


def _import(module: Any, name: str) -> Any:
    tell(loads.load_module, module, name)
    return module


def _imported(module: Any, value: Any, name: str) -> Any:
    if not _is_recorded():
        return value
    _read(module, name)
    return _substitutes.of(value)


def _store_attr(owner: Any, name: str) -> None:
    tell(loads.setter, owner, name)


def _store_global(name: str) -> None:
    tell(stores.entry, sys._getframe(1).f_globals, name)


def _delete_attr(owner: Any, name: str) -> None:
    """Record the deletion of an attribute as a read, which may fail, and a write."""
    _read(owner, name)
    _store_attr(owner, name)


def _delete_global(name: str) -> None:
    frame = sys._getframe(1)
    tell(loads.load_global, name, frame.f_globals, frame.f_builtins, asker=frame.f_code.co_filename)
    tell(stores.entry, frame.f_globals, name)


def _is_same(one: Any, other: Any) -> bool:
    active = _active
    if active is None or active.thread != threading.get_ident():
        return one is other
    return active.is_same(one, other) or _instead.get(id(one), one) is _instead.get(
        id(other), other
    )


def _contains(item: Any, container: Any) -> bool:
    if type(container) is Table:
        return item in _read_of(container, item)
    return contains(container, item) if _is_recorded() else item in container


def _subject(value: Any) -> Any:
    if not _is_recorded():
        return value
    # the interpreter reads a pattern's attributes without hooks
    for name in matched(value):
        _read(value, name)
    return subject_of(value)


def _matched(value: Any, kind: Any) -> None:
    if _is_recorded():
        _readers.checked(value, type(value), kind)


def _called(function: Any) -> Any:
    if not _is_recorded():
        return function
    if function is types.FunctionType:
        return _function_of
    return CALLED.get(id(function)) or _instead.get(id(function), function)


def _function_of(*args: Any, **kwargs: Any) -> types.FunctionType:
    """Return a new function, as ``types.FunctionType`` does, whose code is recorded like that of
    other functions.
    """
    function = types.FunctionType(*args, **kwargs)
    if _is_recorded() and not is_trusted(function.__code__.co_filename):
        function.__code__ = instrumented(function.__code__, HOOKS)
    return function


def _exchange(recorder: Recorder, value: Any) -> None:
    """Substitute a loaded ``partial``, dispatcher or ``lru_cache`` function while the recording
    lasts.
    """
    if isinstance(value, functools.partial):
        function = CALLED.get(id(value.func)) or _instead.get(id(value.func))
        if function is not None and id(value) not in _instead:
            recorder.exchanged.append(functools.partial(_instead.pop, id(value), None))
            _instead[id(value)] = functools.partial(function, *value.args, **value.keywords)
        return
    if isinstance(value, functools._lru_cache_wrapper):
        _exchange_memo(recorder, value)
        return
    if isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
        _exchange_method(recorder, value)
        return
    if isinstance(value, functools.singledispatchmethod):
        attributes, before = value.dispatcher.__dict__, value.dispatcher.dispatch
        recorder.exchanged.append(functools.partial(attributes.__setitem__, "dispatch", before))
        attributes["dispatch"] = dispatching(before)
        return
    cell = value.__closure__[value.__code__.co_freevars.index("dispatch")]
    recorder.exchanged.append(functools.partial(setattr, cell, "cell_contents", cell.cell_contents))
    cell.cell_contents = dispatching(cell.cell_contents)


def _exchange_memo(recorder: Recorder, memo: Any) -> None:
    """Substitute an ``lru_cache`` function, so that the trace is called instead, by name or as a
    method.
    """
    if recorder.on_memo is None or id(memo) in _instead:
        return
    recorder.exchanged.append(functools.partial(_instead.pop, id(memo), None))
    _instead[id(memo)] = standing_for(memo, functools.partial(recorder.on_memo, memo))
    name = memo.__name__
    if name not in _WRAPPED:
        recorder.exchanged.append(functools.partial(_WRAPPED.discard, name))
        _WRAPPED.add(name)


def _exchange_method(recorder: Recorder, method: Any) -> None:
    """Substitute a bound method of C that reads any attribute of its object (``"{.k}".format``)."""
    owner, name = method.__self__, method.__name__
    if id(method) in _instead or name not in {"__getattribute__", *object_readers.NAMES}:
        return
    ours = (
        _Reading(method, owner)
        if name == "__getattribute__"
        else _readers.method(owner, name, method)
    )
    recorder.exchanged.append(functools.partial(_instead.pop, id(method), None))
    _instead[id(method)] = ours


def _listed(owner: Any) -> None:
    tell(loads.listed, owner)


def _printed() -> None:
    tell(Recorder.tells, "prints")


def _answered(question: Callable[[], Any], answer: Any, name: str) -> None:
    tell(Recorder.place, Answer(question, answer, name))


def _whole(owner: Any, deep: bool) -> None:
    tell(lambda recorder: whole.touch_whole(recorder, owner, _name(recorder, owner), deep=deep))


def _name(recorder: Recorder, owner: Any) -> str:
    return recorder.names.get(id(owner), type(owner).__name__)


def _members(owner: Any) -> None:
    tell(lambda recorder: whole.touch_members(recorder, owner, _name(recorder, owner)))


def _unpickled(value: Any) -> None:
    tell(lambda recorder: recorder.touch(value, getattr(value, "__name__", "a pickle")))


def _exchanged(module: Any) -> None:
    if isinstance(module, torch.nn.Module):
        _read(module, "named_parameters")
        tell(stores.exchanged, module)


_substitutes = Substitutes(
    _read, _listed, _answered, _printed, _store_attr, _exchanged, _with_its_own_code
)
_readers = object_readers.ObjectReaders(_read, _whole, _members, _unpickled, _answered, _printed)
_instead = _substitutes.table
_instead.update(_readers.table)
if compiled.READS is not None:
    compiled.READS.setup(
        hooks=globals(),
        quiet=loads.QUIET,
        wrapped_names=_WRAPPED,
        wrapped=_wrapped,
        instead=_instead,
    )
HOOKS = Hooks(
    enter=_enter,
    load_global=_load_global if compiled.READS is None else compiled.READS.load_global,
    load_attr=_load_attr if compiled.READS is None else compiled.READS.load_attr,
    load_super=_load_super,
    importing=_importing,
    importing_from=_importing_from,
    loaded=_import,
    imported=_imported,
    store_attr=_store_attr,
    store_global=_store_global,
    delete_attr=_delete_attr,
    delete_global=_delete_global,
    is_same=_is_same,
    contains=_contains,
    table=_table,
    table_item=_table_item,
    table_of=_table_of,
    super_table_of=lambda kind, start, owner: _table_of(kind(start, owner)),
    get_of=_get_of,
    subject=_subject,
    matched=_matched,
    called=_called,
)
