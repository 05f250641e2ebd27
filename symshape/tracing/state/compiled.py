"""What is written in C++, where it was built: checks of tensors and dictionaries, and the notes of a recording.

:mod:`symshape.native` finds or compiles them (``compiled_checks.cpp`` and ``compiled_reads.cpp``).  Without the one
torch's own checks serve, without the other the same in Python; both take longer.
"""

from __future__ import annotations

from typing import Any

from symshape.native.loader import load

_CHECKS: Any = load("symshape.tracing.state.compiled_checks")
READS: Any = load("symshape.tracing.state.compiled_reads")
"""The notes of a recording and the hooks that add to them: see ``reads.py``, ``loads.py`` and ``hooks.py``."""
METADATA: Any = getattr(_CHECKS, "Metadata", None)
"""``METADATA(tensors).same()``: whether a tuple of tensors still have their metadata; a TypeError for some kinds."""

POINTERS: Any = getattr(_CHECKS, "Pointers", None)
"""``POINTERS(places).same()``: whether functions, classes, objects and variables of closures refer to what they did.

A place is ``(owner, attribute, value)``: ``__code__``, ``__defaults__`` or ``__kwdefaults__`` of a function,
``__mro__`` of a class, ``__class__`` or ``__dict__`` of an object, what an object of C refers to by a member
(``func`` of a ``partial``), or, with no attribute's name, the variable of a closure; a TypeError for any other.
"""


def _sees_attributes(versions: Any) -> bool:
    """Whether a watched dictionary tells that an attribute was set of the object whose attributes it holds.

    (Python 3.13 keeps attributes in the object itself, and tells nobody.)
    """

    class Thing:
        name = 0

    thing = Thing()
    watch = versions((vars(thing),))
    thing.name = 1
    if watch.unchanged(None):
        return False
    watch = versions((vars(thing),))
    thing.name = 2
    return not watch.unchanged(None)


VERSIONS: Any = getattr(_CHECKS, "Versions", None)
if VERSIONS is not None and not _sees_attributes(VERSIONS):
    VERSIONS = None
"""``VERSIONS(dicts)`` watches a tuple of dictionaries; ``unchanged(None)``: none was written; ``written()``: which."""
