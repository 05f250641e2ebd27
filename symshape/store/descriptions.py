"""Descriptions of objects by content: everything that their identity implied while the program ran.

A trace compares objects by identity. Another process has other objects, so each is described by the
properties that are fixed for an object's life: its class, the code of a function, the metadata of a
tensor, the parts of an immutable object. Attributes and items that a program read are places of
their own, and are not described here. An object that cannot be described is refused.
"""

from __future__ import annotations

import abc
import enum
import functools
import logging
import re
import sys
import types
import typing
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
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
        found = ["function", value.__module__, value.__qualname__, code_digest(value.__code__)]
        return [*found, value.__doc__] if self.with_documentation else found

    def tensor(self, value: torch.Tensor) -> Json:
        """Describe a tensor: its metadata, and the tensors that it shares memory with; not its
        values.
        """
        if value.layout is not torch.strided or value.is_quantized:
            raise NotStorable("a tensor that is not a plain one")
        memory = self._memories.setdefault(value.untyped_storage()._cdata, len(self._memories))
        shape = [list(value.shape), list(value.stride()), value.storage_offset()]
        flags = [
            value.requires_grad,
            value.is_leaf,
            value.is_inference(),
            value.is_conj(),
            value.is_neg(),
        ]
        return [
            "tensor",
            type(value).__name__,
            str(value.dtype),
            str(value.device),
            *shape,
            *flags,
            memory,
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
        *(
            value.requires_grad,
            value.is_leaf,
            value.is_inference(),
            value.is_conj(),
            value.is_neg(),
        ),
        *(value.is_quantized, value.untyped_storage()._cdata),
    )


def _module(_: Describer, value: types.ModuleType) -> Json:
    name = value.__name__
    if sys.modules.get(name) is not value and type(value).__module__ != "torch._ops":
        raise NotStorable(f"the module {name}, which is not imported by that name")
    return ["module", name]


def _class(_: Describer, value: type) -> Json:
    return ["class", *_name(value), [".".join(_name(each)) for each in value.__mro__[1:]]]


def _name(kind: type) -> tuple[str, str]:
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
    return ["object", *_name(type(value))]


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
    **dict.fromkeys(_CONTAINERS, _kind_only),
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
        return _class
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
