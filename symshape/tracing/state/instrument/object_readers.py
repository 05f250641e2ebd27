"""Substitutes for functions of Python and C that read a program's objects past every look-up of
its code: copies, pickles, formats, checks of protocols.

Each substitute first records what the original is about to read, and then calls the original.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import dataclasses
import functools
import inspect
import io
import pickle
import pprint
import re
import reprlib
import string
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from symshape.tracing.intercept.exchanges import standing_for
from symshape.tracing.intercept.python_numbers.builtins import plain_isinstance
from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.symbolic.nodes.texts import call_for_program

_COPIES = {"copy": False, "deepcopy": True, "replace": False}  # ``replace`` from Python 3.13 on
_TEXTS = ((pickle, "dumps"), (pprint, "pformat"), (pprint, "saferepr"), (reprlib, "repr"))
_PRINTS = ((pprint, "pprint"), (pprint, "pp"))
_ANNOTATIONS = ((typing, "get_type_hints"), (inspect, "get_annotations"))
_OF_FUNCTIONS = (
    *((functools, "wraps"), (functools, "cache"), (functools, "lru_cache")),
    *((functools, "singledispatch"), (contextlib, "contextmanager")),
    *((contextlib, "asynccontextmanager"), (inspect, "getdoc"), (inspect, "unwrap")),
)
"""The functions that read or copy the name, the attributes and the like of another function."""
_METHODS_OF_OBJECTS = frozenset(
    ("__reduce__", "__reduce_ex__", "__getstate__", "__dir__", "__sizeof__")
)
"""The methods of ``object`` that read all attributes of an object."""
FORMATS = frozenset(("format", "format_map", "vformat"))
"""The names of the methods that read attributes named in a format."""
NAMES = _METHODS_OF_OBJECTS | FORMATS
"""The names of methods that :meth:`ObjectReaders.method` exchanges."""
_FIELD = re.compile(r"\.([^.\[]+)|\[([^\]]*)\]")
_PROTOCOL: Any = type(Protocol)


class ObjectReaders:
    """The substitutes, by ``id`` of the original, in ``table``.

    Args:
        read: told of an object and the name of an attribute that is about to be read.
        whole: told of an object that is about to be read as a whole, and whether also the objects
            in it.
        members: told of an object or class of which all attributes are about to be listed and read.
        unpickled: told of a class or function that a pickle names, before it is used.
        answered: told of a question and its answer.
        printed: told when something is about to be printed.
    """

    def __init__(
        self,
        read: Callable[[Any, str], None],
        whole: Callable[[Any, bool], None],
        members: Callable[[Any], None],
        unpickled: Callable[[Any], None],
        answered: Callable[[Callable[[], Any], Any, str], None],
        printed: Callable[[], None],
    ) -> None:
        self._read, self._whole, self._members = read, whole, members
        self._unpickled, self._answered, self._printed = unpickled, answered, printed
        self.table: dict[int, Any] = {}
        for name, deep in _COPIES.items():
            self._exchange(copy, name, functools.partial(self._copied, deep))
        for module, name in _TEXTS:
            self._exchange(module, name, lambda owner: whole(owner, True))
        for module, name in _PRINTS:
            self._exchange(module, name, lambda owner: printed())
        for module, name in _ANNOTATIONS:
            self._exchange(module, name, self._annotations)
        for name in ("getmembers", "getmembers_static"):
            self._exchange(inspect, name, members)
        self._exchange(inspect, "isabstract", lambda owner: read(owner, "__abstractmethods__"))
        for module, name in _OF_FUNCTIONS:
            self._exchange(module, name, self._function)
        self._exchange(inspect, "getmro", lambda owner: read(owner, "__mro__"))
        self._exchange(dataclasses, "fields", lambda owner: read(owner, "__dataclass_fields__"))
        self.table[id(functools.update_wrapper)] = standing_for(
            functools.update_wrapper, self._wrapper
        )
        self.table[id(inspect.getattr_static)] = standing_for(
            inspect.getattr_static, self._getattr_static
        )
        self.table[id(pickle.loads)] = standing_for(pickle.loads, self._loads)
        self.table[id(isinstance)] = standing_for(isinstance, self._isinstance)
        self.table[id(issubclass)] = standing_for(issubclass, self._issubclass)

    def method(self, owner: Any, name: str, value: Any) -> Any:
        """Return what traced code gets for a method with a name in ``NAMES``."""
        if name in FORMATS:
            reads_attributes = issubclass(type(owner), (str, string.Formatter)) or owner is str
            return functools.partial(self._format, owner, value) if reads_attributes else value
        if not issubclass(type(value), _OF_C) or not (
            owner is object or not issubclass(type(owner), (type, types.ModuleType))
        ):
            return value
        return functools.partial(self._reduce, owner, value)

    def _exchange(self, module: Any, name: str, note: Callable[[Any], object]) -> None:
        original = getattr(module, name, None)
        if original is None:
            return

        def noted(*args: Any, **kwargs: Any) -> Any:
            if args or kwargs:
                note(args[0] if args else next(iter(kwargs.values())))
            return original(*args, **kwargs)

        self.table[id(original)] = standing_for(original, noted)

    def _copied(self, deep: bool, owner: Any) -> None:
        self._whole(owner, deep)

    def _annotations(self, owner: Any) -> None:
        for each in owner.__mro__ if issubclass(type(owner), type) else (owner,):
            if not issubclass(type(owner), types.ModuleType):
                self._read(each, "__annotations__")

    def _function(self, owner: Any) -> None:
        if issubclass(type(owner), types.FunctionType):
            for name in (*functools.WRAPPER_ASSIGNMENTS, "__dict__"):
                if hasattr(owner, name):
                    self._read(owner, name)

    def _wrapper(self, wrapper: Any, wrapped: Any, *args: Any, **kwargs: Any) -> Any:
        self._function(wrapped)
        return functools.update_wrapper(wrapper, wrapped, *args, **kwargs)

    def _getattr_static(self, owner: Any, name: str, *default: Any) -> Any:
        if type(name) is str:
            self._read(owner, name)
        return inspect.getattr_static(owner, name, *default)

    def _loads(self, data: Any, /, **options: Any) -> Any:
        told = self._unpickled

        class Reader(pickle.Unpickler):
            def find_class(self, module: str, name: str) -> Any:
                found = super().find_class(module, name)
                told(found)
                return found

        return Reader(io.BytesIO(data), **options).load()

    def _reduce(self, owner: Any, method: Callable[..., Any], *args: Any) -> Any:
        self._whole(args[0] if owner is object and args else owner, False)
        return method(*args)

    def _format(self, owner: Any, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        text: Any = owner
        values: Any = args
        if not issubclass(type(owner), str):
            text, values = (args[0], args[1:]) if args else ("", ())
        named: Any = kwargs
        if getattr(method, "__name__", "") == "format_map" and values:
            values, named = (), values[0]
        elif getattr(method, "__name__", "") == "vformat" and len(values) == 2:
            values, named = values
        if issubclass(type(text), str):
            for field in _fields_of(text):
                self._field(field, values, named)
        return call_for_program(method, *args, **kwargs)

    def _field(self, field: str, values: Any, named: Any) -> None:
        """Record the attributes that one field of a format reads (``0.scale[k].x``)."""
        first = re.split(r"[.\[]", field, maxsplit=1)[0]
        rest = field[len(first) :]
        if not rest:
            return
        try:
            found = values[int(first)] if first.isdigit() else named[first]
            for step in _FIELD.finditer(rest):
                attribute, key = step.groups()
                if attribute is not None:
                    self._read(found, attribute)
                    if step.end() == len(rest):
                        return  # the original reads it, perhaps by a property
                    found = getattr(found, attribute)
                else:
                    found = found[int(key) if key.isdigit() else key]
        except (LookupError, AttributeError, TypeError):
            return  # the original raises the same

    # -- checks of classes
    def _isinstance(self, value: object, kinds: Any) -> bool:
        found = plain_isinstance(value, kinds)
        if type(kinds) is not type:
            self.checked(value, type(value), kinds)
        return found

    def _issubclass(self, kind: Any, kinds: Any) -> bool:
        found = issubclass(kind, kinds)
        if type(kinds) is not type:
            self.checked(kind, kind, kinds)
        return found

    def checked(self, value: Any, kind: type, kinds: Any) -> None:
        """Record what decides whether a class is one of ``kinds``: protocols look at attributes."""
        if issubclass(type(kinds), (tuple, types.UnionType)):
            for each in kinds if issubclass(type(kinds), tuple) else kinds.__args__:
                self.checked(value, kind, each)
            return
        if not issubclass(type(kinds), abc.ABCMeta) or trusted_code.is_of_c(kind):
            return
        if type(kinds) is _PROTOCOL and kinds not in kind.__mro__:
            for name in _attributes_of_protocol(kinds):
                self._read(value, name)
        if trusted_code.is_of_machinery(kinds) and not trusted_code.is_of_machinery(kind):
            question = _subclass_of(kind, kinds)
            self._answered(question, question(), f"whether {kind.__name__} is a {kinds.__name__}")


_OF_C = (types.BuiltinFunctionType, types.MethodWrapperType, types.MethodDescriptorType)


@typing.runtime_checkable
class _Empty(Protocol):
    """A protocol that asks for nothing."""

    __slots__ = ()


_OF_EVERY_PROTOCOL = frozenset(_Empty.__dict__) | frozenset(
    trusted_code.words(
        "__annotations__ __class_getitem__ __dict__ __match_args__ __new__ __orig_bases__ "
        "__type_params__ __weakref__"
    )
)
"""The names in the dictionary of a protocol that it does not ask for."""


@functools.lru_cache(maxsize=1024)
def _subclass_of(kind: type, base: type) -> Callable[[], bool]:
    """Return the same question for the same classes, so that it is recorded once."""
    return functools.partial(issubclass, kind, base)


def _attributes_of_protocol(kind: type) -> Iterator[str]:
    """Yield the names that a protocol asks for (as ``typing._get_protocol_attrs`` does)."""
    for each in kind.__mro__:
        if type(each) is _PROTOCOL and each is not Protocol and each.__dict__.get("_is_protocol"):
            for name in (*each.__dict__, *inspect.get_annotations(each)):
                if not name.startswith("_abc_") and name not in _OF_EVERY_PROTOCOL:
                    yield name


def _fields_of(text: str) -> Iterator[str]:
    """Yield the fields of a format, with numbers for those that have none."""
    number = 0
    pending = [text]
    while pending:
        try:
            parts = list(string.Formatter().parse(pending.pop()))
        except ValueError:
            return  # the original raises the same
        for _, field, spec, _ in parts:
            if field is None:
                continue
            if not field or field[0] in ".[":
                field, number = f"{number}{field}", number + 1
            yield field
            if spec:
                pending.append(spec)
