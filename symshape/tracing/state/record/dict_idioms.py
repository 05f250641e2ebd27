"""Record ``x.__dict__.get(name)``, ``x.__dict__["name"]`` and ``name in x.__dict__`` as look-ups of
one attribute.

Some classes read their own dictionary in this way at every look-up
(``super().__getattribute__("__dict__").get(...)``).
"""

from __future__ import annotations

import types
from typing import Any

from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.state.record import attribute_lookups, loads
from symshape.tracing.state.record.recorder import Recorder


class Table:
    """A stand-in for the ``__dict__`` of an object between two instructions, the second of which
    reads an entry.
    """

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = owner


def has_table(recorder: Recorder, owner: Any) -> bool:
    """Return whether an object's ``__dict__`` is the plain dictionary of its attributes."""
    kind = type(owner)
    if kind in loads.QUIET or loads.reader_of(kind) is not loads.of_object:
        return False
    found = loads.member_of(recorder, kind, "__dict__").found
    return (
        isinstance(found, types.GetSetDescriptorType)
        and attribute_lookups.attributes_of(owner) is not None
    )


def of_table(recorder: Recorder, owner: Any, key: str) -> None:
    """Record the read of one entry of an object's ``__dict__``, which bypasses the object's
    class.
    """
    if id(owner) not in recorder.known:  # made while tracing
        return
    kind, attributes = type(owner), attribute_lookups.attributes_of(owner)
    assert attributes is not None
    name = recorder.names.get(id(owner), kind.__name__)
    before = recorder.namespaces.get(id(attributes))
    if before is None:
        before = recorder.namespace(
            name, attributes, not trusted_code.is_machinery(kind.__module__)
        )
    if key in attributes:
        recorder.entry(attributes, key, f"{name}.{key}" if name else key, before)
    else:
        recorder.absent(name or kind.__name__, attributes, key, before)
