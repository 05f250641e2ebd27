"""Descriptions of objects by content: everything that their identity implied while the program ran.

A trace compares objects by identity. Another process has other objects, so each is described by the
properties that are fixed for an object's life: its class, the code of a function, the metadata of a
tensor, the parts of an immutable object. Attributes and items that a program read are places of
their own, and are not described here. Python's and torch's own code reads more of an object without
a record: the members of an ``Enum``, the annotations of a class, the storage of a tensor. These are
described as well. An object that cannot be described is refused.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import hashlib
import json
import logging
import re
import sys
import types
import typing
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

import torch

from meta_fns.torch_internals import OpOverload, OpOverloadPacket
from symshape.calls.constant_keys import PLAIN, EqualityKey, constant_key
from symshape.store.code_digests import code_digest
from symshape.store.json_values import Json, to_json
from symshape.store.store_errors import NotStorable
from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.state.record import process_groups
from symshape.tracing.state.record.class_lookups import is_of_library, slots_of
from symshape.user_code import is_library

_CONTAINERS = (list, dict, set, deque, bytearray, OrderedDict, defaultdict)
_OF_C = (
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_TYPING = (types.GenericAlias, types.UnionType)
_BASES: frozenset[type] = frozenset(
    {
        object,
        torch.nn.Module,
        typing.Generic,
        typing.Protocol,
        abc.ABC,
        enum.Enum,
        enum.ReprEnum,
        enum.Flag,
        *_CONTAINERS,
    }
)
_NUMBERS = (int, float, complex, str, bytes)
TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class Describer:
    """The description of objects; tensors that share memory get the same number, in order of
    appearance.
    """

    def __init__(self, with_documentation: bool = False) -> None:
        self.with_documentation = with_documentation
        self._memories: dict[int, int] = {}

    def of(self, value: Any) -> Json:
        """Describe an object that is no plain value.

        Raises:
            NotStorable: what it is cannot be said.
        """
        kind = type(value)
        describe = _BY_KIND.get(kind)
        if describe is None:
            describe = _BY_KIND[kind] = _describe_for(kind)
        return describe(self, value)

    # -- by class
    def function(self, value: types.FunctionType) -> Json:
        """Describe a Python function."""
        code = value.__code__
        found = ["function", value.__module__, value.__qualname__, code_digest(code)]
        if not (trusted_code.is_trusted(code.co_filename) or is_library(code.co_filename)):
            found += [value.__name__, _summary(_annotations(value))]
        return [*found, value.__doc__] if self.with_documentation else found

    def class_(self, value: type) -> Json:
        """Describe a class: its names, its bases, the functions and the contents of those that are
        no library's.

        Python's own functions read the contents unseen: ``len(Colour)``, ``dataclasses.fields``.
        """
        found = ["class", *_name(value), [".".join(_name(each)) for each in value.__mro__[1:]]]
        own = [each for each in value.__mro__ if not _stays(each)]
        contents = [_contents(each, self.with_documentation) for each in own]
        if isinstance(value, abc.ABCMeta):
            contents += [[each] for each in _registered(value, all_classes=bool(own))]
        if not contents:
            return found
        functions = [
            [[key, *_name(each)] for key, each in kind.__dict__.items() if type(each) is _FUNCTION]
            for kind in own
        ]
        texts = (json.dumps(each, sort_keys=True) for each in (contents, functions))
        return [*found, *(hashlib.sha256(text.encode()).hexdigest() for text in texts)]

    def tensor(self, value: torch.Tensor) -> Json:
        """Describe a tensor: its metadata, and the tensors that it shares memory with; not its
        values.
        """
        if value.layout is not torch.strided or value.is_quantized:
            raise NotStorable("a tensor that is not a plain one")
        storage = value.untyped_storage()
        memory = self._memories.setdefault(storage._cdata, len(self._memories))
        shape = [list(value.shape), list(value.stride()), value.storage_offset()]
        flags = _flags_of(value)
        return [
            "tensor",
            type(value).__name__,
            str(value.dtype),
            str(value.device),
            *shape,
            *flags,
            memory,
        ]


def _flags_of(value: torch.Tensor) -> list[Json]:
    """Return the yes-or-no properties of a strided tensor, and the bytes of its storage."""
    storage = value.untyped_storage()
    pinned = torch.cuda.is_initialized() and value.device.type == "cpu" and value.is_pinned()
    return [
        value.requires_grad,
        value.is_leaf,
        value.is_inference(),
        value.is_conj(),
        value.is_neg(),
        value.retains_grad,
        value._is_view(),
        storage.nbytes(),
        storage.is_shared(),
        pinned,
    ]


def present(value: torch.Tensor) -> tuple[Any, ...]:
    """Return the metadata by which a strided tensor is compared within one process."""
    return (
        *(
            type(value),
            value.dtype,
            value.device,
            value.shape,
            value.stride(),
            value.storage_offset(),
        ),
        *_flags_of(value),
        *(value.is_quantized, value.untyped_storage()._cdata),
    )


def _module(_: Describer, value: types.ModuleType) -> Json:
    name = value.__name__
    if sys.modules.get(name) is not value and type(value).__module__ != "torch._ops":
        raise NotStorable(f"the module {name}, which is not imported by that name")
    return ["module", name]


def _stays(kind: type) -> bool:
    """Return whether a class is Python's, torch's or a library's, fixed by its version."""
    return (
        trusted_code.is_of_c(kind)
        or trusted_code.is_machinery(kind.__module__)
        or is_of_library(kind)
    )


_DEPTH = 4  # of containers in the contents of a class
_MADE_LATER = frozenset(
    trusted_code.words(
        "__dict__ __weakref__ __module__ __doc__ __slotnames__ __annotations__ __annotate__ "
        "__annotate_func__ __annotations_cache__ __conditional_annotations__ __firstlineno__ "
        "__static_attributes__ __non_callable_proto_members__ __callable_proto_members_only__ "
        "_abc_impl _value2member_map_"
    )
)
"""The names in a class that Python adds at some use of the class, or whose order may differ."""
_OF_NAMED_TUPLES = ("_fields", "_field_defaults")


def _contents(kind: type, documented: bool) -> Json:
    """Return what a class holds: its names in order, and the values that no trace compares."""
    held = kind.__dict__
    found = [
        [key, _summary(value, _DEPTH if _is_pythons(key) else 0)]
        for key, value in held.items()
        if key not in _MADE_LATER
    ]
    annotated: Any = held.get("__annotations__")
    if annotated is None and "__annotate_func__" in held:  # from Python 3.14 on
        annotated = _annotations(kind)
    return [
        *(_name(kind), type.__dict__["__name__"].__get__(kind), _name(type(kind))),
        *(found, _summary(annotated or {}), held.get("__doc__") if documented else None),
    ]


def _is_pythons(key: str) -> bool:
    """Return whether a name in a class has a meaning for Python, which does not change later."""
    return (key.startswith("_") and key.endswith("_")) or key in _OF_NAMED_TUPLES


def _annotations(owner: Any) -> Any:
    try:
        return owner.__annotations__
    except Exception:  # from Python 3.14 on they are computed here, and a name may be missing
        return "annotations that cannot be computed"


def _registered(kind: type, all_classes: bool) -> list[str]:
    """Return the names of the classes that are registered with an abstract class, or with one
    below it: all of them, or those that are no library's.
    """
    found: list[str] = []
    pending, seen = [kind], set[int]()
    while pending:
        each = pending.pop()
        if id(each) not in seen and isinstance(each, abc.ABCMeta):
            seen.add(id(each))
            below = [one() for one in _dump(each)[0] if isinstance(one, weakref.ref)]
            found += [
                ".".join(_name(one))
                for one in below
                if one is not None and (all_classes or not _stays(one))
            ]
            pending += [*_below(each), *(one for one in below if one is not None)]
    return sorted(found)


_dump: Callable[[type], tuple[Any, ...]] = abc._get_dump  # type: ignore[attr-defined]
_below: Callable[[type], list[type]] = type.__subclasses__
_FUNCTION = types.FunctionType
_MEMBERS = (staticmethod, classmethod, property, functools.cached_property)
_INSIDE = ("__func__", "fget", "fset", "fdel", "func")


def _summary(value: Any, depth: int = _DEPTH) -> Json:
    """Return a text of an object that is the same in every process; of other kinds, the class.

    It stands for what Python's own functions may read of an object that no trace met.
    """
    kind = type(value)
    if kind in PLAIN:
        return to_json(value)
    if isinstance(value, type):
        return ["class", *_name(value)]
    if kind is types.FunctionType:
        arguments = value.__code__.co_varnames[: value.__code__.co_argcount + 8]
        defaults = _summary(value.__defaults__, depth), _summary(value.__kwdefaults__, depth)
        counts = value.__code__.co_argcount, value.__code__.co_kwonlyargcount
        return [*_name(value), *arguments, *counts, *defaults, _summary(_annotations(value), depth)]
    if isinstance(value, _MEMBERS):
        return [*_name(kind), *(_summary(getattr(value, each, None), depth) for each in _INSIDE)]
    if isinstance(value, enum.Enum):
        return ["member", *_name(kind), value._name_, _summary(value._value_, depth)]
    if kind.__module__ == "typing" or kind in _TYPING:
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    parts = _inside(value) if depth > 0 or kind in (tuple, frozenset) else None
    if parts is None:
        return ["a", *_name(kind)]
    found = [_summary(each, depth - 1) for each in parts]
    return [*_name(kind), *(sorted(found, key=str) if kind in _UNORDERED else found)]


_UNORDERED = (set, frozenset)


def _inside(value: Any) -> Iterable[Any] | None:
    """Return the parts of a container or of a dataclass's field; None for other objects."""
    kind = type(value)
    if isinstance(value, (dict, types.MappingProxyType)):
        items: Mapping[Any, Any] = value
        return [part for pair in items.items() for part in pair]
    if kind in (tuple, list, set, frozenset, deque):
        return list(value)
    if kind.__module__ == "dataclasses":
        names = slots_of(kind) or getattr(kind, "__slots__", ())
        return [getattr(value, each, dataclasses.MISSING) for each in names]
    return None


def _name(kind: Any) -> tuple[str, str]:
    return str(kind.__module__), kind.__qualname__


def _of_c(_: Describer, value: Any) -> Json:
    owner = getattr(value, "__objclass__", None)
    where = getattr(value, "__module__", None) if owner is None else ".".join(_name(owner))
    return [
        "of C",
        type(value).__name__,
        where,
        getattr(value, "__qualname__", None) or value.__name__,
    ]


def _kind_only(_: Describer, value: Any) -> Json:
    return ["a", *_name(type(value))]


def _container(_: Describer, value: Any) -> Json:
    return ["a", *_name(type(value)), *_of_containers(value)]


def _of_containers(value: Any) -> list[Json]:
    """Return what a container of C holds beside its items."""
    return [value.maxlen] if isinstance(value, deque) else []


def _tuple(_: Describer, value: tuple[Any, ...]) -> Json:
    return ["tuple", len(value)]


def _frozenset(_: Describer, value: frozenset[Any]) -> Json:
    return ["frozenset", len(value)]


def _member(_: Describer, value: enum.Enum) -> Json:
    return ["member", *_name(type(value)), value._name_, to_json(value._value_)]


def _of_numbers(_: Describer, value: Any) -> Json:
    plain: Any
    if isinstance(value, int):  # past what the class does about conversions
        plain = int.__int__(value)
    elif isinstance(value, float):
        plain = float.__float__(value)
    elif isinstance(value, str):
        plain = str.__str__(value)
    else:
        plain = bytes(value) if isinstance(value, bytes) else complex.__complex__(value)
    return ["number", *_name(type(value)), to_json(plain)]


def _instance(_: Describer, value: Any) -> Json:
    return ["object", *_name(type(value)), *_of_containers(value)]


def _namespace(_: Describer, value: Any) -> Json:
    return ["namespace"]


def _parts(_: Describer, value: Any) -> Json:
    def unknown(each: Any) -> Any:
        raise NotStorable(
            f"an object that holds a {type(each).__module__}.{type(each).__qualname__}"
        )

    return ["value", flat_key(constant_key(value, unknown))]


def flat_key(key: Any) -> Json:
    """Return a key of ``calls/constant_keys.py`` as JSON."""
    if isinstance(key, tuple):
        return [flat_key(each) for each in key]
    if isinstance(key, type):
        return ["class", *_name(key)]
    if type(key) is EqualityKey:
        raise NotStorable("a value whose class defines its own equality")
    return to_json(key)


def _code(_: Describer, value: types.CodeType) -> Json:
    return ["code", code_digest(value)]


def _pattern(_: Describer, value: re.Pattern[Any]) -> Json:
    return ["pattern", to_json(value.pattern), value.flags]


def _shown(_: Describer, value: Any) -> Json:
    text = repr(value)
    if " at 0x" in text:
        raise NotStorable(f"a {type(value).__qualname__} that is identified only by its address")
    return ["shown", *_name(type(value)), text]


def _variable(_: Describer, value: ContextVar[Any]) -> Json:
    return ["context variable", value.name]


def _refuse(_: Describer, value: Any) -> Json:
    kind = type(value)
    raise NotStorable(
        f"an object of class {kind.__module__}.{kind.__qualname__}, whose content cannot be seen"
    )


def _of_groups(words: list[Any] | None) -> list[Any]:
    if words is None:
        raise NotStorable("a process group that this process is not in, or no longer")
    return words


Describe = Callable[[Describer, Any], Json]

_EXACT: dict[type, Describe] = {
    types.FunctionType: Describer.function,
    types.CodeType: _code,
    tuple: _tuple,
    frozenset: _frozenset,
    torch.Size: _tuple,
    types.CellType: _kind_only,
    types.MethodType: _kind_only,
    weakref.ref: _kind_only,
    functools.partial: lambda _, value: ["partial", len(value.args)],
    functools._lru_cache_wrapper: _kind_only,
    functools.cached_property: _kind_only,
    staticmethod: _kind_only,
    classmethod: _kind_only,
    property: _kind_only,
    re.Pattern: _pattern,
    ContextVar: _variable,
    logging.Logger: lambda _, value: ["logger", value.name],
    types.SimpleNamespace: _namespace,
    OpOverload: _shown,
    OpOverloadPacket: _shown,
    **dict.fromkeys(_CONTAINERS, _container),
    **dict.fromkeys(_OF_C, _of_c),
    **dict.fromkeys(_TYPING, _shown),
    **dict.fromkeys(TENSORS, Describer.tensor),
}
_BY_KIND: dict[type, Describe] = dict(_EXACT)


def _describe_for(kind: type) -> Describe:
    """Return the function that describes the objects of a class."""
    if issubclass(kind, types.ModuleType):
        return _module
    if issubclass(kind, type):
        return Describer.class_
    if issubclass(kind, torch.Tensor):
        return _refuse
    if kind.__name__ == "_tuplegetter":  # of a named tuple: a position, and a text for people
        return lambda _, value: ["of a named tuple", value.__reduce__()[1][0]]
    if kind.__module__ == "typing":
        return _shown
    if kind.__module__ == "numpy":
        if any(each.__name__ == "generic" for each in kind.__mro__):
            return _parts
        return (
            _kind_only
            if kind.__name__ == "ndarray"
            else _shown
            if kind.__name__ == "dtype"
            else _refuse
        )
    if process_groups.is_group(kind):
        return lambda _, value: ["process group", *_of_groups(process_groups.described(value))]
    if process_groups.is_mesh(kind):
        return lambda _, value: ["mesh", *_of_groups(process_groups.mesh_in_words(value))]
    if hasattr(kind, "__symshape_compiled__") or kind.__module__.startswith("symshape.frontends."):
        return _kind_only
    if issubclass(kind, enum.Enum):
        return _member
    if (
        kind in PLAIN
        or kind.__module__ in ("datetime", "decimal", "fractions", "uuid", "pathlib")
        or kind in (range, slice)
    ):
        return _parts
    if issubclass(kind, _NUMBERS):
        return _of_numbers if _is_open(kind, *_NUMBERS) else _refuse
    return _instance if _is_open(kind, tuple, frozenset) else _refuse


def _is_open(kind: type, *also: type) -> bool:
    """Return whether a class and its bases are Python classes: no C class hides what an object
    holds.
    """
    return all(each in _BASES or each in also or not _is_of_c(each) for each in kind.__mro__)


def _is_of_c(kind: type) -> bool:
    """Return whether a class is written in C, also by pybind11 (process groups)."""
    return trusted_code.is_of_c(kind) or kind.__module__ == "pybind11_builtins"


@functools.cache
def is_described_whole(kind: type) -> bool:
    """Return whether an object of a class is described with all that it holds.

    Methods that are trusted not to change read it unseen.
    """
    if kind in _EXACT or _describe_for(kind) is not _instance or trusted_code.is_whole(kind):
        return False
    return any(
        each not in _BASES and trusted_code.is_machinery(each.__module__) for each in kind.__mro__
    )
