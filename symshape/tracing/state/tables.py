"""``x.__dict__.get(name)``, ``x.__dict__["name"]``, ``name in x.__dict__``: look-ups of one attribute, and not of all.

Some classes ask their own dictionary so at every look-up (``super().__getattribute__("__dict__").get(...)``).
"""

from __future__ import annotations

import types
from typing import Any

from symshape.tracing.state import loads, lookups, trusted
from symshape.tracing.state.recorder import Recorder


class Table:
    """Stands for the ``__dict__`` of an object between two instructions, of which the second one asks for an entry."""

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = owner


def has_table(recorder: Recorder, owner: Any) -> bool:
    """Whether an object's ``__dict__`` is the dictionary of its attributes, which are read as such."""
    kind = type(owner)
    if kind in loads.QUIET or loads.reader_of(kind) is not loads.of_object:
        return False
    found = loads.member_of(recorder, kind, "__dict__").found
    return isinstance(found, types.GetSetDescriptorType) and lookups.attributes_of(owner) is not None


def of_table(recorder: Recorder, owner: Any, key: str) -> None:
    """One entry of such a dictionary is about to be read, past the object's class."""
    if id(owner) not in recorder.known:  # made while tracing
        return
    kind, attributes = type(owner), lookups.attributes_of(owner)
    assert attributes is not None
    name = recorder.names.get(id(owner), kind.__name__)
    before = recorder.namespaces.get(id(attributes))
    if before is None:
        before = recorder.namespace(name, attributes, not trusted.is_machinery(kind.__module__))
    if key in attributes:
        recorder.entry(attributes, key, f"{name}.{key}" if name else key, before)
    else:
        recorder.absent(name or kind.__name__, attributes, key, before)
