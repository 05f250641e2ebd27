"""Record what a program reads of classes: attributes found in them, and methods that Python calls
implicitly.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.state.record import attribute_lookups
from symshape.tracing.state.record.places import MISSING, SPECIAL, Cell, Keys, special_names
from symshape.tracing.state.record.recorder import Recorder
from symshape.user_code import is_library


def look_up(recorder: Recorder, kind: type, key: str, name: str) -> Any:
    """Return the value of a name in a class or its bases, and record it; ``MISSING`` if there is
    none.
    """
    for each in kind.__mro__:
        if key in each.__dict__:
            found = each.__dict__[key]
            if not trusted_code.is_machinery(each.__module__) or key == "forward":
                _class_place(recorder, kind, each, key, found, f"{name}.{key}")
            touch_member(recorder, found, f"{name}.{key}")
            return found
    return MISSING


def absent(recorder: Recorder, kind: type, key: str, name: str) -> None:
    """Record that a class was asked for a name that neither the class nor a base has."""
    if not trusted_code.is_machinery(kind.__module__):
        _class_place(recorder, kind, kind, key, MISSING, f"{name}.{key}")


def _class_place(
    recorder: Recorder, kind: type, home: type, key: str, found: Any, name: str
) -> None:
    if (id(kind), key) in recorder.seen:
        return
    recorder.known.setdefault(id(kind), kind)
    recorder.class_namespace(home)
    recorder.place(attribute_lookups.place_of(kind, key, found, name))
    # the key is the class asked, not the class that has it
    recorder.seen.setdefault((id(kind), key), kind)


def class_entry(recorder: Recorder, home: type, key: str, name: str) -> None:
    """Record an attribute that was found in a class."""
    found = home.__dict__[key]
    if not trusted_code.is_machinery(home.__module__) or key == "forward":
        recorder.place(Cell(recorder.class_namespace(home).owner, key, found, name))
    touch_member(recorder, found, name)


def absent_here(recorder: Recorder, home: type, key: str, name: str) -> None:
    """Record that a class, without its bases, was asked for an attribute and does not have it."""
    if not trusted_code.is_machinery(home.__module__) and not attribute_lookups.is_of_library(home):
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
                recorder.attribute(
                    found, "__code__", found.__code__, f"{found.__qualname__}.__code__"
                )
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
    attributes = attribute_lookups.attributes_of(found)
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
    for home in kind.__mro__:
        if trusted_code.is_machinery(home.__module__):
            continue
        attribute_lookups.functions_of(home, False, functools.partial(touch_member, recorder))
        if not attribute_lookups.is_of_library(home):
            class_as_it_is(recorder, home, False, no_other_names)


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
    functions = attribute_lookups.FUNCTIONS if everything else types.FunctionType
    for key, value in before.before.items():
        if (everything or (key.startswith("__") and key.endswith("__"))) and isinstance(
            value, functions
        ):
            recorder.place(
                Cell(recorder.class_namespace(home).owner, key, value, f"{home.__qualname__}.{key}")
            )
    name = f"the names in {home.__qualname__}"
    if no_other_names:
        recorder.place(Keys(before.owner, tuple(before.before), name))
    else:
        recorder.place(Keys(before.owner, special_names(before.before), name, SPECIAL))
