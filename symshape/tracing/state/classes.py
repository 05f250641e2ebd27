"""What is read of classes: attributes found in them, and the methods that Python calls by itself."""

from __future__ import annotations

import functools
import types
from typing import Any

from symshape.tracing.state import lookups, trusted
from symshape.tracing.state.places import MISSING, Cell, Keys
from symshape.tracing.state.recorder import Recorder


def look_up(recorder: Recorder, kind: type, key: str, name: str) -> Any:
    """What the classes of an object have under a name; answers what stands there."""
    for each in kind.__mro__:
        if key in each.__dict__:
            found = each.__dict__[key]
            if not trusted.is_machinery(each.__module__) or key == "forward":
                _class_place(recorder, kind, each, key, found, f"{name}.{key}")
            touch_member(recorder, found, f"{name}.{key}")
            return found
    return MISSING


def absent(recorder: Recorder, kind: type, key: str, name: str) -> None:
    """A name was looked for in a class itself and was not there."""
    if not trusted.is_machinery(kind.__module__):
        _class_place(recorder, kind, kind, key, MISSING, f"{name}.{key}")


def _class_place(recorder: Recorder, kind: type, home: type, key: str, found: Any, name: str) -> None:
    if (id(kind), key) in recorder.seen:
        return
    recorder.known.setdefault(id(kind), kind)
    recorder.class_namespace(home)
    recorder.place(lookups.place_of(kind, key, found, name))
    recorder.seen.setdefault((id(kind), key), kind)  # an answer is known by who asks, not by its class


def class_entry(recorder: Recorder, home: type, key: str, name: str) -> None:
    """An attribute that was found in a class."""
    found = home.__dict__[key]
    if not trusted.is_machinery(home.__module__) or key == "forward":
        recorder.place(Cell(recorder.class_namespace(home).owner, key, found, name))
    touch_member(recorder, found, name)


def touch_member(recorder: Recorder, found: Any, name: str) -> None:
    """A method, property or other descriptor of a class."""
    if type(found) is types.FunctionType:
        recorder.touch(found, name)
    elif isinstance(found, (staticmethod, classmethod)):
        recorder.touch(found.__func__, name)
    elif isinstance(found, property):
        for each in (found.fget, found.fset):
            if each is not None:
                recorder.touch(each, name)
    elif isinstance(found, functools.cached_property):
        recorder.touch(found.func, name)
    else:
        recorder.touch(found, name)


def special_methods(recorder: Recorder, kind: type) -> None:
    """Methods that Python calls by itself: operators, ``__getattr__``, ``__call__`` …; that there are no others."""
    if id(kind) in recorder.kinds:
        return
    recorder.kinds.add(id(kind))
    recorder.known.setdefault(id(kind), kind)
    for home in kind.__mro__:
        if trusted.is_machinery(home.__module__):
            continue
        lookups.functions_of(home, False, functools.partial(touch_member, recorder))
        if not lookups.is_of_library(home):
            class_as_it_is(recorder, home, False)


def class_as_it_is(recorder: Recorder, home: type, everything: bool) -> None:
    """The functions of a class stay (``everything``, or those that Python calls by itself), and none is added."""
    before = recorder.class_namespace(home)
    functions = lookups.FUNCTIONS if everything else types.FunctionType
    for key, value in before.before.items():
        if (everything or (key.startswith("__") and key.endswith("__"))) and isinstance(value, functions):
            recorder.place(Cell(recorder.class_namespace(home).owner, key, value, f"{home.__qualname__}.{key}"))
    recorder.place(Keys(before.owner, tuple(before.before), f"the names in {home.__qualname__}"))
