"""Record objects of C and of Python's own classes that never change themselves, but hold objects of
the program: members of an ``Enum``, slices, context variables.
"""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import enum
import functools
import re
import types
import typing
from collections import defaultdict
from typing import Any

from symshape.torch_internals import pytree
from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.state.record.class_lookups import look_up
from symshape.tracing.state.record.places import MISSING, PLAIN, Answer
from symshape.tracing.state.record.recorder import Handler, Recorder

_PARTS: dict[type, tuple[str, ...]] = {
    slice: ("start", "stop", "step"),
    re.Match: ("string",),  # perhaps a bytearray
    datetime.datetime: ("tzinfo",),
    datetime.time: ("tzinfo",),
    types.GenericAlias: ("__args__",),
}
"""By class: the attributes that may hold an object of the program, and cannot be set."""
_OF_ZONES = ("utcoffset", "dst", "tzname", "fromutc")
"""The methods of a time zone that a ``datetime`` calls."""


def touch_parts(recorder: Recorder, value: Any, name: str) -> None:
    """Record the objects that a ``slice`` and the like hold for ever."""
    for kind, parts in _PARTS.items():
        if issubclass(type(value), kind):
            for part in parts:
                held = getattr(value, part)
                if type(held) not in PLAIN:
                    recorder.touch(held, f"{name}.{part}")


def touch_alias(recorder: Recorder, value: Any, name: str) -> None:
    """Record the objects beside the type in ``typing.Annotated[int, …]``."""
    recorder.touch(value.__metadata__, f"the metadata of {name}")


def touch_context_variable(recorder: Recorder, value: Any, name: str) -> None:
    """Record a context variable, whose value each call asks for again; its default stays."""
    ask = functools.partial(value.get, MISSING)
    recorder.place(Answer(ask, ask(), name))
    recorder.touch(ask(), name, True)
    with contextlib.suppress(LookupError):
        recorder.touch(contextvars.Context().run(value.get), f"the default of {name}", True)


def touch_called_by_c(recorder: Recorder, value: Any, name: str) -> None:
    """Record the parts of an object of the program that code of Python and C asks for by itself."""
    kind = type(value)
    if is_open_enum(kind):
        _touch_enum_member(recorder, value, name)
    if issubclass(kind, datetime.tzinfo):
        for key in _OF_ZONES:
            look_up(recorder, kind, key, kind.__qualname__)
    node = pytree.SUPPORTED_NODES.get(kind)
    if node is not None and not trusted_code.is_of_machinery(kind):
        recorder.touch(node.flatten_fn, f"how {kind.__name__} is flattened")
        recorder.touch(node.unflatten_fn, f"how {kind.__name__} is made")


def _touch_enum_member(recorder: Recorder, value: enum.Enum, name: str) -> None:
    """Record the value of a member of an ``Enum``, which Python's own property returns."""
    attributes = value.__dict__
    before = recorder.namespace(name, attributes)
    for key in ("_value_", "_name_"):
        if key in attributes:
            recorder.entry(attributes, key, f"{name}.{key.strip('_')}", before)


def touch_enum(recorder: Recorder, kind: type[enum.Enum], name: str) -> None:
    """Record the members of an ``Enum``, which its metaclass returns past every look-up."""
    for key, member in kind._member_map_.items():
        recorder.touch(member, f"{name}.{key}")


def touch_default_factory(recorder: Recorder, value: defaultdict[Any, Any], name: str) -> None:
    """Record the function that a ``defaultdict`` calls for a missing key."""
    label = f"the default_factory of {name}"
    recorder.attribute(value, "default_factory", value.default_factory, label)
    recorder.touch(value.default_factory, label, True)


def is_open_enum(kind: type) -> bool:
    """Return whether a class is an ``Enum`` of the program or of a library."""
    return issubclass(kind, enum.Enum) and not trusted_code.is_of_machinery(kind)


HANDLERS: tuple[tuple[Any, Handler], ...] = (
    (tuple(_PARTS), touch_parts),
    (type(typing.Annotated[int, 0]), touch_alias),
    (contextvars.ContextVar, touch_context_variable),
)
"""The handlers of loaded values, by class."""
