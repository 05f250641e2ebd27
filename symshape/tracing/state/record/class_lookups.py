"""Record what a program reads of classes: attributes found in them, and methods that Python calls
implicitly.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from symshape.tracing.state.compare import torch_functions
from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.state.instrument.rewriter import original_of
from symshape.tracing.state.record.places import (
    MISSING,
    PLAIN,
    SPECIAL,
    Answer,
    Attribute,
    Cell,
    Keys,
    Place,
    is_special,
    special_names,
)
from symshape.tracing.state.record.recorder import Recorder
from symshape.user_code import is_library

# -- Look-ups in classes: attributes found in an object's classes, slots, and methods that Python
# calls implicitly.
_AS_THEY_ARE = (types.FunctionType, types.BuiltinFunctionType, type, *PLAIN)
_of_object = object.__getattribute__


def attributes_of(value: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object's own attributes, bypassing the look-ups of its class;
    None if it has none.
    """
    try:
        found = _of_object(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def matched(value: Any) -> list[str]:
    """Return the names of all attributes that a class pattern may read of an object of a Python
    class.
    """
    kind = type(value)
    if (
        isinstance(value, torch.Tensor)
        or trusted_code.is_of_c(kind)
        or trusted_code.is_of_machinery(kind)
    ):
        return []
    members = (each.__dict__.items() for each in kind.__mro__ if not trusted_code.is_of_c(each))
    found = {
        key: None
        for each in members
        for key, one in each
        if not key.startswith("__") and not _is_function(one)
    }
    return [*found, *(attributes_of(value) or ())]


def _is_function(value: Any) -> bool:
    return isinstance(value, (types.FunctionType, staticmethod, classmethod))


def static(kind: type, key: str) -> Any:
    """Return the value of a name in a class or its bases, without calling descriptors; ``MISSING``
    if there is none.
    """
    for each in kind.__mro__:
        if key in each.__dict__:
            return each.__dict__[key]
    return MISSING


def place_of(kind: type, key: str, found: Any, name: str) -> Place:
    """Return the place of a look-up in a class; a plain attribute if ``getattr`` returns the same
    value.
    """
    plain = isinstance(found, _AS_THEY_ARE) and type(kind).__getattribute__ is type.__getattribute__
    if plain and not hasattr(type(static(type(kind), key)), "__set__"):
        return Attribute(kind, key, found, name)
    return Answer(Lookup(kind, key), found, name, key)


class Lookup:
    """The question which value is stored under a name in a class or its bases."""

    __slots__ = ("key", "kind")

    def __init__(self, kind: type, key: str) -> None:
        self.kind, self.key = kind, key

    def __call__(self) -> Any:
        """Return the value that is stored there now."""
        return static(self.kind, self.key)


@functools.lru_cache(maxsize=1024)
def _slots_of(kind: type) -> tuple[str, ...]:
    return tuple(
        key
        for each in kind.__mro__
        if not trusted_code.is_of_c(each)
        for key, value in each.__dict__.items()
        if isinstance(value, types.MemberDescriptorType)
    )


def slots_of(kind: type) -> tuple[str, ...]:
    """Return the names of the slots that classes of Python code give to their objects."""
    return _slots_of(kind)


def functions_of(kind: type, everything: bool, tell: Callable[[Any, str], None]) -> None:
    """Call ``tell`` with the functions of a class: all of them, or those that Python calls
    implicitly.

    Of a library's class, the functions that make, show or pickle an object are assumed to stay, and
    left out.
    """
    wanted = _USED.__contains__ if is_of_library(kind) else is_special
    for key, value in list(kind.__dict__.items()):
        if ((everything or wanted(key)) and isinstance(value, FUNCTIONS)) or (
            wanted(key) and is_called(value)
        ):
            tell(value, f"{kind.__qualname__}.{key}")


def is_called(value: Any) -> bool:
    """Return whether an implicitly called method is an object of another class than a function:
    one with a ``__call__``, or a descriptor.
    """
    kind = type(value)
    return issubclass(kind, _CALLED_OF_C) or (
        (hasattr(kind, "__call__") or hasattr(kind, "__get__"))  # noqa: B004
        and not issubclass(kind, (type, *FUNCTIONS))
        and not trusted_code.is_of_c(kind)
    )


_CALLED_OF_C = (functools.partial, functools._lru_cache_wrapper, types.MethodType)
FUNCTIONS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
_BINARY = trusted_code.words(
    "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or"
)
_UNARY = trusted_code.words(
    "call getitem len iter next contains bool float int index getattr getattribute enter exit get "
    "set eq ne lt le gt ge hash neg pos abs invert round missing reversed"
)
_USED = frozenset(
    f"__{prefix}{name}__" for name in _BINARY for prefix in ("", "r", "i")
) | frozenset(f"__{name}__" for name in _UNARY)


@functools.lru_cache(maxsize=4096)
def _is_of_library(name: str) -> bool:
    return is_library(getattr(sys.modules.get(name), "__file__", None) or "")


def is_of_library(kind: type) -> bool:
    """Return whether a class is defined in an installed library."""
    name = kind.__module__
    return _is_of_library(name) and not (
        trusted_code.is_machinery(name) and trusted_code.is_made(kind)
    )


def look_up(recorder: Recorder, kind: type, key: str, name: str) -> Any:
    """Return the value of a name in a class or its bases, and record it; ``MISSING`` if there is
    none.
    """
    for each in kind.__mro__:
        if key in each.__dict__:
            found = each.__dict__[key]
            if not trusted_code.is_of_machinery(each) or key == "forward":
                _class_place(recorder, kind, each, key, found, f"{name}.{key}")
            elif _is_of_users(found) and (id(each), key) not in recorder.seen:
                recorder.seen[id(each), key] = each
                recorder.places.append(Cell(each.__dict__, key, found, f"{name}.{key}"))
            touch_member(recorder, found, f"{name}.{key}")
            return found
    return MISSING


def absent(recorder: Recorder, kind: type, key: str, name: str) -> None:
    """Record that a class was asked for a name that neither the class nor a base has."""
    if not trusted_code.is_of_machinery(kind):
        _class_place(recorder, kind, kind, key, MISSING, f"{name}.{key}")


def absent_in_bases(recorder: Recorder, kind: type, key: str, name: str) -> None:
    """Record that the classes of libraries, Python and torch among a class and its bases do not
    have a name.
    """
    for home in kind.__mro__:
        theirs = trusted_code.is_of_machinery(home) or is_of_library(home)
        if theirs and not trusted_code.is_of_c(home) and (id(home), key) not in recorder.seen:
            recorder.seen[id(home), key] = home
            recorder.places.append(Cell(home.__dict__, key, MISSING, f"{name}.{key}"))


def _class_place(
    recorder: Recorder, kind: type, home: type, key: str, found: Any, name: str
) -> None:
    if (id(kind), key) in recorder.seen:
        return
    recorder.known.setdefault(id(kind), kind)
    recorder.class_namespace(home)
    recorder.place(place_of(kind, key, found, name))
    # the key is the class asked, not the class that has it
    recorder.seen.setdefault((id(kind), key), kind)


def class_entry(recorder: Recorder, home: type, key: str, name: str) -> None:
    """Record an attribute that was found in a class."""
    found = home.__dict__[key]
    if not trusted_code.is_of_machinery(home) or key == "forward":
        recorder.place(Cell(recorder.class_namespace(home).owner, key, found, name))
    touch_member(recorder, found, name)


def absent_here(recorder: Recorder, home: type, key: str, name: str) -> None:
    """Record that a class, without its bases, was asked for an attribute and does not have it."""
    if not trusted_code.is_of_machinery(home) and not is_of_library(home):
        recorder.place(Cell(recorder.class_namespace(home).owner, key, MISSING, name))


_OF_CALLS = ("__call__", "__getattribute__", "_wrapped_call_impl", "_call_impl", "__getattr__")
"""The methods through which a call of a module gets to ``forward``, and an attribute name to a
parameter.
"""


def dispatching_methods(recorder: Recorder, kind: type) -> None:
    """Record the methods that lead from a call of a module to its ``forward``, and their code; once
    for each class.
    """
    if (id(kind), _OF_CALLS) in recorder.seen:
        return
    recorder.seen[id(kind), _OF_CALLS] = kind
    for key in _OF_CALLS:
        name = f"{kind.__qualname__}.{key}"
        for home in kind.__mro__:
            found = home.__dict__.get(key, MISSING)
            if home is not object:
                recorder.places.append(Cell(home.__dict__, key, found, name))
            if type(found) is types.FunctionType and trusted_code.is_trusted(
                found.__code__.co_filename
            ):
                code = original_of(found.__code__, recorder.hooks)
                recorder.attribute(found, "__code__", code, f"{found.__qualname__}.__code__")
            if found is not MISSING:
                touch_member(recorder, found, name)
                break


_PARTS: dict[type, tuple[str, ...]] = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools.cached_property: ("func", "attrname"),
    functools.partialmethod: ("func", "args", "keywords"),
    functools.singledispatchmethod: ("func", "dispatcher"),
}
"""By class of a descriptor: its attributes that hold functions; ``__init__`` (in C) or a write
replaces them.
"""


def parts_of_member(recorder: Recorder, found: Any, name: str) -> None:
    """Record the functions and arguments that a descriptor of the user's code refers to."""
    attributes = attributes_of(found)
    for kind in type(found).__mro__:
        parts = _PARTS.get(kind, ())
        if parts and not _is_of_users(getattr(found, parts[0])):
            return
        for part in parts:
            label = f"{part.strip('_')} of {name}"
            if attributes is not None and part in attributes:
                recorder.place(Cell(attributes, part, attributes[part], label))
            else:
                recorder.attribute(found, part, getattr(found, part), label)


def _is_of_users(function: Any) -> bool:
    """Return whether a function, or the function in a descriptor, has code that is not from a
    library.
    """
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return (
        code is not None
        and not trusted_code.is_trusted(code.co_filename)
        and not is_library(code.co_filename)
    )


def touch_member(recorder: Recorder, found: Any, name: str) -> None:
    """Record the functions behind a method, property or other descriptor of a class."""
    if type(found) is types.FunctionType:
        recorder.touch(found, name)
    elif isinstance(found, (staticmethod, classmethod)):
        parts_of_member(recorder, found, name)
        recorder.touch(found.__func__, name)
    elif isinstance(found, property):
        parts_of_member(recorder, found, name)
        for each in (found.fget, found.fset):
            if each is not None:
                recorder.touch(each, name)
    elif isinstance(found, functools.cached_property):
        parts_of_member(recorder, found, name)
        recorder.touch(found.func, name)
    else:
        recorder.touch(found, name)


def special_methods(recorder: Recorder, kind: type) -> None:
    """Record the methods that Python calls implicitly (operators, ``__getattr__`` …), and that no
    others are added.
    """
    if id(kind) not in recorder.kinds:
        recorder.kinds.add(id(kind))
        _special_methods(recorder, kind, True)


def of_made(recorder: Recorder, kind: type) -> None:
    """Record the implicitly called methods of a class whose object is made while tracing; other
    names may be added.
    """
    _special_methods(recorder, kind, False)


def _special_methods(recorder: Recorder, kind: type, no_other_names: bool) -> None:
    recorder.known.setdefault(id(kind), kind)
    bases(recorder, kind)
    for home in kind.__mro__:
        if trusted_code.is_of_machinery(home):
            torch_functions.watch(home)
            for key, value in _followed(home):
                touch_member(recorder, value, f"{home.__qualname__}.{key}")
            continue
        if is_of_library(home):
            functions_of(home, False, functools.partial(_special_method, recorder, home))
            continue
        functions_of(home, False, functools.partial(touch_member, recorder))
        class_as_it_is(recorder, home, False, no_other_names)


def _special_method(recorder: Recorder, home: type, found: Any, name: str) -> None:
    """Record an implicitly called method of a library's class, which the program may replace."""
    key = name.rpartition(".")[2]
    recorder.place(Cell(recorder.class_namespace(home).owner, key, found, name))
    touch_member(recorder, found, name)


def _is_followed(value: Any) -> bool:
    code = getattr(getattr(value, "__func__", value), "__code__", None)
    return code is not None and trusted_code.is_followed(code)


def _followed(home: type) -> tuple[tuple[str, Any], ...]:
    """Return the implicitly called methods of a trusted class whose reads are recorded."""
    module = sys.modules.get(home.__module__)
    stays = getattr(module, home.__name__, None) is home  # a Mock has a class of its own
    return _followed_of(home) if stays else _find_followed(home)


def _find_followed(home: type) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (key, value)
        for key, value in list(home.__dict__.items())
        if is_special(key)
        and (_is_followed(value) if isinstance(value, FUNCTIONS) else is_called(value))
    )


_followed_of = functools.lru_cache(maxsize=1024)(_find_followed)


def bases(recorder: Recorder, kind: type) -> None:
    """Record the bases of a class of the program: look-ups in it and ``isinstance`` depend on
    them.
    """
    if not trusted_code.is_of_machinery(kind) and not is_of_library(kind):
        recorder.attribute(kind, "__mro__", kind.__mro__, f"the bases of {kind.__qualname__}")


def class_as_it_is(
    recorder: Recorder, home: type, everything: bool, no_other_names: bool = True
) -> None:
    """Record that the functions of a class stay, and that no function is added.

    Args:
        recorder: the recording.
        home: the class.
        everything: whether all functions count; otherwise only those that Python calls implicitly.
        no_other_names: whether no name at all may be added, also none that Python does not look up
            implicitly.
    """
    before = recorder.class_namespace(home)
    functions = FUNCTIONS if everything else types.FunctionType
    for key, value in before.before.items():
        implicit = key.startswith("__") and key.endswith("__")
        if ((everything or implicit) and isinstance(value, functions)) or (
            implicit and is_called(value)
        ):
            recorder.place(
                Cell(recorder.class_namespace(home).owner, key, value, f"{home.__qualname__}.{key}")
            )
    name = f"the names in {home.__qualname__}"
    if no_other_names:
        recorder.place(Keys(before.owner, tuple(before.before), name))
    else:
        recorder.place(Keys(before.owner, special_names(before.before), name, SPECIAL))
