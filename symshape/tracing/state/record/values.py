"""Record the values that code loads, in a way that depends on their class: what they hold and what
they refer to.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import inspect
import os
import random
import sys
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.distributions import kl_divergence
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from symshape.errors import Reason, UnsupportedError
from symshape.graph.lru_cache_answers import answers_of
from symshape.torch_internals import dispatch
from symshape.torch_internals.library import divergences
from symshape.tracing.intercept.python_warnings import PYTHONS_WARN
from symshape.tracing.state.compare import torch_functions
from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.state.instrument.rewriter import instrumented, is_instrumented
from symshape.tracing.state.record import holders, process_groups, torch_flags
from symshape.tracing.state.record.class_lookups import (
    attributes_of,
    bases,
    class_as_it_is,
    dispatching_methods,
    functions_of,
    is_of_library,
    parts_of_member,
    slots_of,
    special_methods,
    static,
    touch_member,
)
from symshape.tracing.state.record.loads import of_object, refuse_clock, whole_tree
from symshape.tracing.state.record.lru_caches import objects_of
from symshape.tracing.state.record.places import (
    MISSING,
    PLAIN,
    Answer,
    Attribute,
    Cell,
    Container,
    items_of,
)
from symshape.tracing.state.record.reads import SYMBOLIC
from symshape.tracing.state.record.recorder import NOT_TO_SEE, TABLES, Handler, Recorder
from symshape.user_code import is_library

# -- Modules that cannot be traced at all: refused by their class before anything runs.
_INITIALIZED = frozenset({torch.nn.Parameter, torch.nn.Buffer, torch.Tensor, type(None)})


_PREPARED_EACH_CALL = frozenset(
    {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"}
)
"""The classes of torch whose forward also prepares, at each call, the exchange of gradients between
ranks.
"""


# classes die as their programs do
_known: WeakKeyDictionary[type, frozenset[str]] = WeakKeyDictionary()


def _prepared(kind: type) -> frozenset[str]:
    found = _known.get(kind)
    if found is None:
        found = _known[kind] = _PREPARED_EACH_CALL.intersection(
            each.__name__ for each in kind.__mro__
        )
    return found


def _shown(module: torch.nn.Module, name: str) -> str:
    return f"the module {name or type(module).__name__}"


def refuse_untraceable(module: torch.nn.Module, name: str) -> None:
    """Check that one module (not those inside it) can be traced; the program calls it ``name``.

    Raises:
        UnsupportedError: it is compiled by TorchScript, its parameters are made by its first call,
            or it exchanges parameters or gradients with other ranks.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedError(
            f"{_shown(module, name)} is a ScriptModule, whose code and state cannot be read; "
            "trace the module that it was made from",
            reason=Reason.MODULES,
        )
    for table in (module._parameters, module._buffers):
        for each in table.values():
            if type(each) not in _INITIALIZED and issubclass(type(each), UninitializedTensorMixin):
                raise UnsupportedError(
                    f"{_shown(module, name)} is a lazy module: its first call creates its "
                    "parameters, which a trace would undo; call it once before it is traced",
                    reason=Reason.MODULES,
                )
    own: type = type(module)
    around = _prepared(own)
    if around and (torch.is_grad_enabled() or "DistributedDataParallel" not in around):
        (kind, *_) = sorted(around)
        instead = f"compile the module inside of it instead: {kind}(symshape.compile(module))"
        if kind == "FSDPModule":  # a module that is sharded itself becomes one
            instead = (
                "compile a module inside of it instead: fully_shard(m), where m.inner = "
                "symshape.compile(module)"
            )
        raise UnsupportedError(
            f"{_shown(module, name)} is a {kind}, which prepares its communication with other "
            "ranks in each call; "
            f"{instead}",
            reason=Reason.MODULES,
        )


# -- Record what a ``functools.partial``, ``partialmethod`` or ``singledispatchmethod`` calls.
def touch_partial(recorder: Recorder, value: Any, name: str) -> None:
    """Record the function and the arguments of a ``functools.partial``."""
    label = name or "partial"
    for part in ("func", "args", "keywords"):  # __setstate__ may replace them
        recorder.attribute(value, part, getattr(value, part), f"{part} of {label}")
    recorder.touch(value.func, name)
    recorder.on_exchange(recorder, value)
    for i, each in enumerate(value.args):
        recorder.touch(each, f"{label} argument {i}")
    recorder.touch(value.keywords, f"keywords of {label}", True)


def touch_method_of_functools(recorder: Recorder, value: Any, name: str) -> None:
    """Record the function and the arguments of a ``functools.partialmethod`` or
    ``singledispatchmethod``.
    """
    parts_of_member(recorder, value, name)
    touch_member(recorder, value.func, name)
    if isinstance(value, functools.singledispatchmethod):
        recorder.touch(value.dispatcher, name)
        recorder.on_exchange(recorder, value)
        return
    for i, each in enumerate(value.args):
        recorder.touch(each, f"{name} argument {i}")
    recorder.touch(value.keywords, f"keywords of {name}", True)


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CLASS = object.__dict__["__class__"]
_CONTAINERS = (list, dict, set, deque, bytearray)
_FUNCTIONS_OF_C = (types.BuiltinFunctionType, types.MethodWrapperType)
_MOST_BYTES = 1 << 16
_COMPILED = "symshape.frontends.compiled"
"""The module of the class of compiled functions."""
_REGISTRIES: dict[int, tuple[str, Any]] = {
    id(os.getenv): ("os.environ", os.environ),
    id(kl_divergence): ("the functions of register_kl", divergences),
}
"""By ``id`` of a trusted function: what it reads of the process, with a name."""
_dispatching: Any = functools.singledispatch(lambda value: value)
_DISPATCHING = _dispatching.__code__


def touch_function(recorder: Recorder, function: types.FunctionType, name: str) -> None:
    """Record a Python function: instrument its code, unless that code is trusted, and note its
    defaults.
    """
    code = function.__code__
    if code is _DISPATCHING:
        touch_dispatching(recorder, function, name)
        return
    if is_instrumented(code, recorder.hooks):  # made by a function that runs now
        return
    _notice(recorder, function)
    process_groups.notice(recorder, function.__module__ or "", function.__name__)
    registry = _REGISTRIES.get(id(function))
    if registry is not None:
        recorder.touch(registry[1], registry[0])
    if trusted_code.is_trusted(code.co_filename):
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # an empty variable
                recorder.touch(cell.cell_contents, name)
        if trusted_code.is_followed(code):
            _instrument(recorder, function)
    else:
        recorder.functions.setdefault(id(code), []).append(function)
        recorder.known[id(code)] = code
        _instrument(recorder, function)
        recorder.attribute(function, "__code__", code, f"{function.__name__}.__code__")
        if not is_library(code.co_filename):
            _function_places(recorder, function)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            recorder.touch(value, f"a default of {function.__name__}")
    wrapped = function.__dict__.get("__wrapped__")
    if wrapped is not None:
        recorder.touch(wrapped, name)


def _instrument(recorder: Recorder, function: types.FunctionType) -> None:
    code = function.__code__
    recorder.swapped.append((function, code))
    function.__code__ = instrumented(code, recorder.hooks)


def touch_dispatching(recorder: Recorder, function: Any, name: str) -> None:
    """Record a ``functools.singledispatch`` function: its registered functions; its dispatch cache
    depends on them.
    """
    touch_mapping_proxy(recorder, function.registry, f"what is registered with {name}")
    for kind in function.registry:
        recorder.touch(kind, name)
        if kind.__module__ == "numpy" or (
            issubclass(kind, torch.Tensor) and kind is not torch.Tensor
        ):
            recorder.refuse(
                f"calls {name}, which dispatches on the class {kind.__name__}, {NOT_TO_SEE}",
                Reason.UNCOMPARED,
            )
    recorder.on_exchange(recorder, function)


def _notice(recorder: Recorder, function: Any) -> None:
    """Record the torch flags that a function reads; refuse one that sets a flag or reads a changing
    state.
    """
    hidden = trusted_code.hides(function)
    if hidden:
        recorder.refuse(f"calls {hidden}, {NOT_TO_SEE}", Reason.UNSEEN)
    if trusted_code.asks_what_is_installed(function) and not is_library(recorder.asker):
        name = f"{function.__module__}.{function.__name__}"
        recorder.refuse(f"calls {name}, {NOT_TO_SEE}", Reason.UNSEEN)
    refusal = torch_flags.refusal(function)
    if refusal:
        recorder.refuse(refusal, Reason.FLAGS)
    recorder.ask(torch_flags.read_by(function))


def _function_places(recorder: Recorder, function: types.FunctionType) -> None:
    label = function.__name__
    recorder.attribute(function, "__defaults__", function.__defaults__, f"defaults of {label}")
    recorder.attribute(function, "__kwdefaults__", function.__kwdefaults__, f"defaults of {label}")
    if function.__kwdefaults__:
        touch_container(recorder, function.__kwdefaults__, f"defaults of {label}")
    recorder.namespace(label, function.__dict__)


def touch_method(recorder: Recorder, method: types.MethodType, name: str) -> None:
    """Record the object and the function of a bound method."""
    if method.__self__ is random._inst:  # watched as a whole: see ``Draws``
        return
    recorder.touch(method.__self__, "self" if method is recorder.root else name)
    recorder.touch(method.__func__, name)


def touch_memo(recorder: Recorder, value: Any, name: str) -> None:
    """Record an ``lru_cache`` function; the computation of its stored results was not recorded."""
    recorder.memos.append((value, value.cache_info(), tuple(answers_of(value) or ()), name))
    for each in objects_of(value):
        recorder.touch(each, f"what {name} answers")
    recorder.touch(value.__wrapped__, name)
    recorder.on_exchange(recorder, value)


def touch_c_function(recorder: Recorder, value: Any, name: str) -> None:
    """Record a function of C, and the object that it is a method of."""
    if value is PYTHONS_WARN:
        recorder.tells("warns")
    _notice(recorder, value)
    owner = getattr(value, "__self__", None)
    if isinstance(owner, type):
        refuse_clock(recorder, owner.__mro__, value.__name__)
    if (
        owner is not None
        and owner is not random._inst
        and not isinstance(owner, (type, types.ModuleType))
    ):
        recorder.touch(owner, name)
        recorder.on_exchange(recorder, value)


def touch_tuple(recorder: Recorder, value: Any, name: str) -> None:
    """Record the items of a tuple: the items cannot be replaced, but what they refer to may
    change.
    """
    for i, item in enumerate(value):
        if type(item) not in PLAIN:
            recorder.touch(item, f"{name}[{i}]")
    if not trusted_code.is_of_c(type(value)):
        touch_instance(recorder, value, name)


def touch_container(recorder: Recorder, value: Any, name: str) -> None:
    """Record a list, dictionary, set … of which any item may be read."""
    recorder.known.setdefault(id(value), value)
    before = recorder.namespaces.get(id(value)) if type(value) is dict else None
    # the program may have set attributes by now
    items = items_of(value if before is None else before.before)
    if id(value) in recorder.hidden:
        text = (
            f"writes to the container {name}, which it also reaches by another name; use one "
            "name for it"
        )
        recorder.refuse(text, Reason.STATE)
    if recorder.fresh:
        recorder.made.append(value)
    else:
        recorder.containers.append(Container(value, items, name))
    if isinstance(value, bytearray):
        return
    if issubclass(type(value), defaultdict):
        holders.touch_default_factory(recorder, value, name)
    placed = not recorder.fresh
    table = recorder.names.get(id(value))  # of a module: its entries are named like attributes
    if table is not None:
        for key, item in zip(items[::2], items[1::2], strict=True):
            recorder.touch(item, f"{table}.{key}" if table else key, placed)
    else:
        for i, item in enumerate(items):
            if type(item) not in PLAIN:
                recorder.touch(item, recorder.name_inside(value, items, i, name), placed)
    if not trusted_code.is_of_c(type(value)):
        touch_instance(recorder, value, name)


def touch_mapping_proxy(recorder: Recorder, value: Any, name: str) -> None:
    """Record a read-only view of a dictionary, by the identity of its items."""
    for item in value.values():
        recorder.touch(item, name)
    read = functools.partial(_items_of_proxy, value)
    recorder.place(Answer(read, read(), name))


def touch_array(recorder: Recorder, value: Any, name: str) -> None:
    """Record a NumPy array by its content, if that is small enough."""
    if value.dtype.hasobject or value.nbytes > _MOST_BYTES:
        recorder.refuse(
            f"reads the NumPy array {name} of {value.nbytes:,} bytes, too large to be guarded by "
            "its content; pass it as a tensor",
            Reason.UNCOMPARED,
        )
    recorder.ask(torch_flags.of_class(type(value)))
    recorder.containers.append(Container(value, items_of(value), name))


def touch_numpys(recorder: Recorder, value: Any, name: str) -> None:
    """Record NumPy's settings, on which its numbers and functions of C depend."""
    recorder.ask(torch_flags.of_class(type(value)))


def touch_weak(recorder: Recorder, value: Any, name: str) -> None:
    """Record that a weak reference refers to the same object, which still exists."""
    recorder.place(referent(value, name))
    # a graph keeps it alive
    if isinstance(value(), torch.Tensor) and not isinstance(value(), torch.nn.Parameter):
        recorder.refuse(
            f"reads a tensor through the weak reference {name}, which cannot be guarded; read it "
            "through a strong reference",
            Reason.UNCOMPARED,
        )
    else:
        with recorder.weak():
            recorder.touch(value(), name)


def touch_generator(recorder: Recorder, value: torch.Generator, name: str) -> None:
    """Record a random generator of torch."""
    recorder.on_generator(value)


def touch_tensor(recorder: Recorder, value: torch.Tensor, name: str) -> None:
    """Record a real tensor: a parameter, a buffer, a global."""
    recorder.tensors.setdefault(id(value), name)
    recorder.namespace(name, value.__dict__)
    with dispatch.DisableTorchFunction():  # these reads must not go through our mode
        hooks = value._backward_hooks
        recorded = value.requires_grad and torch.is_grad_enabled()
    if recorded:
        recorder.place(Attribute(value, "_backward_hooks", hooks, f"hooks of {name}"))
    if hooks:
        hook_table(recorder, f"hooks of {name}", hooks)


def touch_class(recorder: Recorder, value: type, name: str) -> None:
    """Record a class: the code that making an object of it runs."""
    recorder.ask(torch_flags.of_class(value))
    if trusted_code.is_of_machinery(value):
        torch_functions.watch(value)
        special_methods(recorder, value)
        return
    bases(recorder, value)
    if holders.is_open_enum(value):
        holders.touch_enum(recorder, value, name)
    if not trusted_code.is_of_machinery(type(value)):
        special_methods(recorder, type(value))
    if isinstance(value, abc.ABCMeta) and recorder.serves and not is_of_library(value):
        recorder.place(
            Answer(
                abc.get_cache_token,
                abc.get_cache_token(),
                "what is registered with abstract classes",
            )
        )
    of_autograd = issubclass(value, torch.autograd.Function)
    for each in value.__mro__:
        if trusted_code.is_of_machinery(each):
            continue
        own = not is_of_library(each)
        functions_of(each, own or of_autograd, functools.partial(touch_member, recorder))
        if own or of_autograd:
            class_as_it_is(recorder, each, of_autograd, of_autograd)
        else:
            recorder.class_namespace(each)


def touch_compiled(recorder: Recorder, value: Any, name: str) -> None:
    """Record a compiled function that another one calls: its original code runs there."""
    recorder.touch(value.fn, name)


def touch_compiled_module(recorder: Recorder, value: Any, name: str) -> None:
    """Record a compiled module inside another: it shares all its attributes with the original
    module, which runs.
    """
    recorder.names[id(value)] = name
    recorder.touch(value.__symshape_compiled__.fn, name)


def touch_environment(recorder: Recorder, value: Any, name: str) -> None:
    """Record the environment of the process."""
    touch_container(recorder, value._data, name)


def touch_hidden(recorder: Recorder, value: Any, name: str) -> None:
    """Refuse an object that no recording can see into."""
    kind = type(value)
    if value is getattr(sys.modules.get("attr._compat"), "repr_context", MISSING):
        return  # where the ``__repr__`` that attrs writes notes what it is about to show
    recorder.refuse(
        f"reads {name}, of class {kind.__module__}.{kind.__qualname__}, {NOT_TO_SEE}",
        Reason.UNCOMPARED,
    )


def touch_object(recorder: Recorder, value: Any, name: str) -> None:
    """Record an object of a Python class."""
    recorder.ask(torch_flags.of_class(type(value)))
    touch_instance(recorder, value, name)
    attributes = attributes_of(value)
    if attributes is not None and trusted_code.is_whole(type(value)):
        recorder.touch(attributes, name, True)


def touch_instance(recorder: Recorder, value: Any, name: str) -> None:
    """Record the attributes of a Python class's object before they are written, and its implicitly
    called methods.
    """
    kind = type(value)
    recorder.names[id(value)] = name
    holders.touch_called_by_c(recorder, value, name)
    attributes = attributes_of(value)
    machinery = trusted_code.is_of_machinery(kind)
    if attributes is not None:
        own = kind is types.SimpleNamespace or not machinery
        before = recorder.namespace(name, attributes, own)
        before.open = before.open or trusted_code.has_trusted_base(kind)
        before.given = before.given or recorder.weakly
    slots = slots_of(kind)
    if slots and static(kind, "__getattribute__") is not object.__dict__["__getattribute__"]:
        text = (
            f"reads {name}, whose class has slots and a __getattribute__ of its own, {NOT_TO_SEE}"
        )
        recorder.refuse(text, Reason.UNCOMPARED)
    for key in slots:
        noted = Attribute(value, key, getattr(value, key, MISSING), f"{name}.{key}")
        recorder.slots.setdefault((id(value), key), noted)
        if recorder.weakly:
            recorder.given.add(id(value))
    if static(kind, "__class__") is _CLASS:
        recorder.attribute(value, "__class__", kind, f"the class of {name}")
    elif not recorder.weakly:  # a proxy, which claims to be of another class
        recorder.place(Answer(functools.partial(type, value), kind, f"the class of {name}"))
    if attributes is not None:
        recorder.attribute(value, "__dict__", attributes, f"the attributes of {name}")
    if machinery:
        torch_functions.watch(kind)
    special_methods(recorder, kind)


def touch_module(recorder: Recorder, module: torch.nn.Module, name: str) -> None:
    """Record a module's tables, its hooks, its ``forward`` and the methods of ``nn.Module`` that
    lead to it.
    """
    refuse_untraceable(module, name)
    touch_instance(recorder, module, name)
    label = name or type(module).__name__
    attributes = module.__dict__
    dispatching_methods(recorder, type(module))
    recorder.absent(label, attributes, "_call_impl", recorder.namespace(label, attributes))
    tables = f"the tables of {label}"
    recorder.places += [
        Cell(attributes, each, attributes[each], tables)
        for each in (*TABLES, *_HOOKS)
        if each in attributes
    ]
    for each in TABLES:
        table = attributes.get(each)
        if table is not None:
            recorder.namespace(label, table)
            recorder.names[id(table)] = name
    hooks_name = f"hooks of {label}"
    known, containers = recorder.known, recorder.containers
    for each in _HOOKS:
        hooks = attributes.get(each, {})
        if hooks:
            hook_table(recorder, hooks_name, hooks)
        else:
            known.setdefault(id(hooks), hooks)
            containers.append(Container(hooks, (), hooks_name))
    of_object(recorder, module, "forward")
    if _is_hidden_forward(type(module)):
        whole_tree(recorder, module, name)


def _is_hidden_forward(kind: type) -> bool:
    """Return whether a module's ``forward`` is torch's code whose reads are not recorded."""
    home = next(each for each in kind.__mro__ if "forward" in each.__dict__)
    if home is torch.nn.Module or not trusted_code.is_machinery(home.__module__):
        return False
    code = getattr(inspect.unwrap(home.__dict__["forward"]), "__code__", None)
    return code is None or (
        trusted_code.is_trusted(code.co_filename) and not trusted_code.is_followed(code)
    )


def hook_table(recorder: Recorder, name: str, hooks: Any) -> None:
    """Record a dictionary of hooks: the hooks in it, and that there are no others."""
    recorder.known.setdefault(id(hooks), hooks)
    recorder.containers.append(Container(hooks, items_of(hooks) if hooks else (), name))
    for hook in hooks.values():
        recorder.touch(hook, name, True)


def _touch_descriptor(recorder: Recorder, value: Any, name: str) -> None:
    touch_member(recorder, value, name)


def referent(reference: Callable[[], Any], name: str) -> Answer:
    """Return the place that asks whether a weak reference still refers to the same object."""
    return Answer(functools.partial(refers_to, reference, _ids(reference())), True, name)


def refers_to(reference: Callable[[], Any], target: tuple[int, ...]) -> bool:
    """Return whether a weak reference refers to the object with this identity."""
    return _ids(reference()) == target


def _ids(value: Any) -> tuple[int, ...]:
    """Return the identity of an object; a ``weakref.WeakMethod`` makes another method each time."""
    if isinstance(value, types.MethodType):
        return id(value.__self__), id(value.__func__)
    return (id(value),)


def _items_of_proxy(proxy: Mapping[Any, Any]) -> str:
    return repr([(key, id(value)) for key, value in proxy.items()])


@functools.lru_cache(maxsize=4096)
def handler_for(kind: type) -> Handler | None:
    """Return the handler that records a loaded value of a class; None if there is nothing to
    record.
    """
    if issubclass(kind, SYMBOLIC) or kind in PLAIN or issubclass(kind, types.ModuleType):
        return None
    if hasattr(kind, "__symshape_compiled__"):
        return touch_compiled_module
    if os._Environ in kind.__mro__:  # isinstance would be slow: it is an abstract class
        return touch_environment
    for base, handler in _BY_CLASS:
        if issubclass(kind, base):
            return handler
    if kind.__module__ == _COMPILED:
        return touch_compiled
    if kind.__module__.partition(".")[0] == "symshape":
        return None
    if kind.__module__ == "numpy" and kind.__qualname__ == "ndarray":
        return touch_array
    if trusted_code.is_hidden(kind):
        return touch_hidden
    if trusted_code.is_of_c(kind) and kind is not types.SimpleNamespace:
        return touch_numpys if kind.__module__ == "numpy" else None
    return touch_object


_BY_CLASS: tuple[tuple[Any, Handler], ...] = (
    (torch.Tensor, touch_tensor),
    (torch.nn.Module, touch_module),
    (types.FunctionType, touch_function),
    (types.MethodType, touch_method),
    (functools.partial, touch_partial),
    ((functools.partialmethod, functools.singledispatchmethod), touch_method_of_functools),
    (functools._lru_cache_wrapper, touch_memo),
    (_FUNCTIONS_OF_C, touch_c_function),
    (type, touch_class),
    (torch.Generator, touch_generator),
    ((tuple, frozenset), touch_tuple),
    (_CONTAINERS, touch_container),
    (types.MappingProxyType, touch_mapping_proxy),
    *holders.HANDLERS,
    (weakref.ref, touch_weak),
    ((staticmethod, classmethod, property, functools.cached_property), _touch_descriptor),
)
