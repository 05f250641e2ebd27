"""What is read of classes: attributes found in them, and the methods that Python calls by itself."""

from __future__ import annotations

import functools
import types
from typing import Any

from symshape.tracing.state import lookups, trusted
from symshape.tracing.state.places import MISSING, SPECIAL, Cell, Keys, special_names
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


def absent_here(recorder: Recorder, home: type, key: str, name: str) -> None:
    """An attribute that was looked for in a class, its bases aside, and was not there."""
    if not trusted.is_machinery(home.__module__) and not lookups.is_of_library(home):
        recorder.place(Cell(recorder.class_namespace(home).owner, key, MISSING, name))


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
    if id(kind) not in recorder.kinds:
        recorder.kinds.add(id(kind))
        _special_methods(recorder, kind, True)


def of_made(recorder: Recorder, kind: type) -> None:
    """The same, for objects that are made while tracing: what else is looked for in their class is noted by itself."""
    _special_methods(recorder, kind, False)


def _special_methods(recorder: Recorder, kind: type, no_other_names: bool) -> None:
    recorder.known.setdefault(id(kind), kind)
    for home in kind.__mro__:
        if trusted.is_machinery(home.__module__):
            continue
        lookups.functions_of(home, False, functools.partial(touch_member, recorder))
        if not lookups.is_of_library(home):
            class_as_it_is(recorder, home, False, no_other_names)


def class_as_it_is(recorder: Recorder, home: type, everything: bool, no_other_names: bool = True) -> None:
    """The functions of a class stay (``everything``, or those that Python calls by itself), and none is added.

    Args:
        recorder: what it is noted in.
        home: the class.
        everything: whether all functions count.
        no_other_names: whether no name may be added, also none of which Python does not ask by itself.
    """
    before = recorder.class_namespace(home)
    functions = lookups.FUNCTIONS if everything else types.FunctionType
    for key, value in before.before.items():
        if (everything or (key.startswith("__") and key.endswith("__"))) and isinstance(value, functions):
            recorder.place(Cell(recorder.class_namespace(home).owner, key, value, f"{home.__qualname__}.{key}"))
    name = f"the names in {home.__qualname__}"
    if no_other_names:
        recorder.place(Keys(before.owner, tuple(before.before), name))
    else:
        recorder.place(Keys(before.owner, special_names(before.before), name, SPECIAL))
