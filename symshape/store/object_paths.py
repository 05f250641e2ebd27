"""Steps from one object to another, such as ``["item", "w"]``, which run no code of the program.

Each kind of step is one row of a table: how it is taken, and the recorded place that it stands for
(``None`` for a step that only leads to another object).
"""

from __future__ import annotations

import abc
import functools
import os
import sys
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar
from typing import Any

import torch

from symshape.store.store_errors import Differs
from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.state.record import process_groups
from symshape.tracing.state.record.class_lookups import Lookup, attributes_of, static
from symshape.tracing.state.record.loads import decimal_context
from symshape.tracing.state.record.places import (
    MISSING,
    SPECIAL,
    Answer,
    Attribute,
    Cell,
    Keys,
    WeakAttribute,
    items_of,
    special_names,
)
from symshape.tracing.state.record.places import Place as Noted
from symshape.tracing.state.record.torch_flags import FLAGS
from symshape.tracing.state.record.values import referent


class Roots:
    """The objects at which steps begin.

    Args:
        fn: the function that is compiled.
        leaves: those of the call.
    """

    def __init__(self, fn: Any, leaves: Sequence[Any]) -> None:
        self.fn, self.leaves = fn, leaves


def _mapping(owner: Any) -> Any:
    if isinstance(owner, (dict, types.MappingProxyType)):
        return owner
    raise Differs("a dictionary")


def _item(owner: Any, key: Any) -> Any:
    try:
        return (
            dict.get(owner, key, MISSING)
            if isinstance(owner, dict)
            else _mapping(owner).get(key, MISSING)
        )
    except TypeError as error:
        raise Differs("a key") from error


def _attributes(owner: Any, _: Any) -> Any:
    if isinstance(owner, type):
        raise Differs("an object")
    found = attributes_of(owner)
    return MISSING if found is None else found


def _nth(owner: Any, key: Any) -> Any:
    items = items_of(owner) if isinstance(owner, (list, tuple, dict, set, frozenset, deque)) else ()
    return items[key] if type(key) is int and 0 <= key < len(items) else MISSING


def _contents(owner: Any, _: Any) -> Any:
    try:
        return owner.cell_contents if isinstance(owner, types.CellType) else MISSING
    except ValueError:
        return MISSING


def _cell(owner: Any, key: Any) -> Any:
    cells = owner.__closure__ or () if isinstance(owner, types.FunctionType) else ()
    return cells[key] if type(key) is int and 0 <= key < len(cells) else MISSING


def _part(name: str, *kinds: type) -> Callable[[Any, Any], Any]:
    """Return the step to an attribute of C objects, for which no class of the program can
    substitute.
    """

    def read(owner: Any, _: Any) -> Any:
        return getattr(owner, name, MISSING) if type(owner) in kinds else MISSING

    return read


def _slot(owner: Any, key: Any) -> Any:
    """Return the value in a slot, or in a member that C keeps of an object."""
    if key == "__class__":
        return type(owner)
    found = static(type(owner), key) if type(key) is str else MISSING
    if not isinstance(found, (types.MemberDescriptorType, types.GetSetDescriptorType)):
        if isinstance(owner, torch.Tensor) and key == "_backward_hooks":
            return owner._backward_hooks
        if isinstance(owner, torch.Tensor) and key == "grad" and owner.is_leaf:
            return owner.grad
        return MISSING
    try:
        return found.__get__(owner, type(owner))
    except AttributeError:
        return MISSING


def _static(owner: Any, key: Any) -> Any:
    if not isinstance(owner, type) or type(key) is not str:
        return MISSING
    return owner.__mro__ if key == "__mro__" else static(owner, key)


def _entry(owner: Any, key: Any) -> Any:
    return owner.__dict__.get(key, MISSING) if isinstance(owner, type) else MISSING


def _base(owner: Any, key: Any) -> Any:
    bases = owner.__mro__ if isinstance(owner, type) else ()
    return bases[key] if type(key) is int and 0 <= key < len(bases) else MISSING


def _keys(owner: Any, key: Any) -> Any:
    names = owner.__dict__ if isinstance(owner, type) else _mapping(owner)
    return special_names(names) if key == SPECIAL else tuple(names)


def _flag_of_module(owner: Any, key: Any) -> Any:
    if (
        not isinstance(owner, types.ModuleType)
        or not trusted_code.is_machinery(owner.__name__)
        or type(key) is not str
    ):
        return MISSING
    return getattr(owner, key, MISSING)


def _flag(_: Any, key: Any) -> Any:
    return FLAGS[key]() if key in FLAGS else MISSING


def _environment(_: Any, key: Any) -> Any:
    return os.environ.get(key) if type(key) is str else MISSING


def _context(owner: Any, _: Any) -> Any:
    return owner.get(MISSING) if isinstance(owner, ContextVar) else MISSING


def default_of(variable: ContextVar[Any]) -> Any:
    """Return the default of a context variable, also while it is set; ``MISSING`` without one."""
    try:
        return Context().run(variable.get)
    except LookupError:
        return MISSING


def _default(owner: Any, _: Any) -> Any:
    return default_of(owner) if isinstance(owner, ContextVar) else MISSING


def _factory(owner: Any, _: Any) -> Any:
    return owner.default_factory if isinstance(owner, defaultdict) else MISSING


def _registration(_: Any, key: Any) -> Any:
    """Return the same in each process: the classes describe what is registered with them."""
    return 0


def _decimal(_: Any, key: Any) -> Any:
    return decimal_context()


def flags_of_hooks(module: torch.nn.Module) -> str:
    """Return how the hooks of a module are called, which is stored beside them (checked on torch
    2.11 to 2.13).
    """
    held = module.__dict__
    found = [held.get("_is_full_backward_hook")]
    for hooks, *tables in _HOOK_TABLES:
        found += [
            each in (held.get(table) or ()) for each in held.get(hooks) or () for table in tables
        ]
    return repr(found)


_HOOK_TABLES = (
    ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
)


def _flags_of_hooks(owner: Any, _: Any) -> Any:
    return flags_of_hooks(owner) if isinstance(owner, torch.nn.Module) else MISSING


GROUPS: dict[str, tuple[Callable[[], str], Callable[[], str]]] = {
    "world": (process_groups.world, process_groups.world),
    "rank": (process_groups.standing, process_groups.standing),
    "groups": (process_groups.standing_in_groups, process_groups.layout),
}
"""The questions to torch.distributed: the value that a process compares with its own, and with
another process's.
"""


def _group(_: Any, key: Any) -> Any:
    return GROUPS[key][1]() if key in GROUPS else MISSING


def _group_here(owner: Any, key: Any, _: Any, name: str) -> Noted:
    question = GROUPS[key][0]
    return Answer(question, question(), name)


def _compiled(owner: Any, _: Any) -> Any:
    found = getattr(type(owner), "__symshape_compiled__", None)
    inner = owner.__symshape_compiled__ if found is not None else owner
    return inner.fn if type(inner).__module__.startswith("symshape.frontends.") else MISSING


Take = Callable[[Any, Any], Any]
Note = Callable[[Any, Any, Any, str], Noted]

_PARTIAL, _METHOD, _FUNCTION = functools.partial, types.MethodType, types.FunctionType
_WRAPPERS = (staticmethod, classmethod)

STEPS: dict[str, tuple[Take, Note | None]] = {
    "function": (lambda roots, _: roots.fn if type(roots) is Roots else MISSING, None),
    "leaf": (
        lambda roots, i: (
            roots.leaves[i]
            if type(roots) is Roots and type(i) is int and 0 <= i < len(roots.leaves)
            else MISSING
        ),
        None,
    ),
    "module": (
        lambda roots, name: sys.modules.get(name, MISSING) if type(name) is str else MISSING,
        lambda o, key, v, name: Cell(sys.modules, key, v, name),
    ),
    "item": (_item, Cell),
    "attributes": (_attributes, None),
    "nth": (_nth, None),
    "contents": (_contents, Cell),
    "cell": (_cell, None),
    "globals": (_part("__globals__", _FUNCTION), None),
    "builtins": (_part("__builtins__", _FUNCTION), None),
    "self": (_part("__self__", _METHOD, types.BuiltinFunctionType, types.MethodWrapperType), None),
    "method": (_part("__func__", _METHOD, *_WRAPPERS), None),
    "partial": (_part("func", _PARTIAL), None),
    "partial args": (_part("args", _PARTIAL), None),
    "partial keywords": (_part("keywords", _PARTIAL), None),
    "getter": (_part("fget", property), None),
    "setter": (_part("fset", property), None),
    "cached": (_part("func", functools.cached_property), None),
    "memo": (_part("__wrapped__", functools._lru_cache_wrapper), None),
    "defaults": (_part("__defaults__", _FUNCTION), None),
    "keyword defaults": (_part("__kwdefaults__", _FUNCTION), None),
    "class": (lambda owner, _: type(owner), None),
    "slot": (_slot, Attribute),
    "static": (_static, Attribute),
    "look-up": (
        _static,
        lambda o, key, v, name: Answer(Lookup(o, key), v, name, key),
    ),
    "entry": (_entry, lambda o, key, v, name: Cell(o.__dict__, key, v, name)),
    "base": (_base, None),
    "keys": (
        _keys,
        lambda o, key, v, name: Keys(o.__dict__ if isinstance(o, type) else o, v, name, key),
    ),
    "weak slot": (_slot, lambda o, key, v, name: Answer(WeakAttribute(o, key), v, name, key)),
    "referent": (
        lambda o, _: o() if type(o) is weakref.ref else MISSING,
        lambda o, key, v, name: referent(o, name),
    ),
    "flag of module": (
        _flag_of_module,
        lambda o, key, v, name: Answer(functools.partial(getattr, o, key, MISSING), v, name, key),
    ),
    "flag": (_flag, lambda o, key, v, name: Answer(FLAGS[key], v, name)),
    "environment": (
        _environment,
        lambda o, key, v, name: Answer(functools.partial(os.environ.get, key), v, name),
    ),
    "context": (
        _context,
        lambda o, key, v, name: Answer(functools.partial(o.get, MISSING), v, name),
    ),
    "context default": (_default, None),
    "factory": (_factory, None),
    "base of view": (lambda o, _: o._base if isinstance(o, torch.Tensor) else MISSING, None),
    "abstract classes": (
        _registration,
        lambda o, key, v, name: Answer(abc.get_cache_token, abc.get_cache_token(), name),
    ),
    "process group": (_group, _group_here),
    "decimal": (_decimal, lambda o, key, v, name: Answer(decimal_context, v, name)),
    "flags of hooks": (_flags_of_hooks, None),
    "compiled": (_compiled, None),
}
"""The steps by kind: how each is taken from an owner with a key, and the place that it stands for.
"""
