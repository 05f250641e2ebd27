"""The parts written in C++, if they are built: checks of tensors and dictionaries, and the notes of
a recording.

:mod:`symshape.native` finds or compiles them (``compiled_checks.cpp`` and ``compiled_reads.cpp``).
Without the checks in C++, torch's own checks are used.  Without the notes in C++, the same is done
in Python.  Both take longer.
"""

from __future__ import annotations

from typing import Any

from symshape.native.loader import load

_CHECKS: Any = load("symshape.tracing.state.compiled_checks")
READS: Any = load("symshape.tracing.state.compiled_reads")
"""The notes of a recording and the hooks that add to them: see ``reads.py``, ``loads.py`` and
``hooks.py``.
"""
METADATA: Any = getattr(_CHECKS, "Metadata", None)
"""``METADATA(tensors).same()`` returns whether the tensors still have their metadata; TypeError for
some kinds.
"""

POINTERS: Any = getattr(_CHECKS, "Pointers", None)
"""``POINTERS(places).same()`` returns whether functions, objects and closures refer to the same
objects as before.

A place is ``(owner, attribute, value)``.  The attribute is ``__code__``, ``__defaults__`` or
``__kwdefaults__`` of a function, ``__mro__`` of a class, ``__class__`` or ``__dict__`` of an
object, or a member of an object of C (``func`` of a ``partial``).  For the variable of a closure,
the attribute's name is empty.  Any other place is a TypeError.
"""


def _sees_attributes(versions: Any) -> bool:
    """Return whether a watch on the dictionary of an object's attributes reports that an attribute
    was set.

    (Python 3.13 stores attributes in the object itself, and reports nothing.)
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


WATCHES: Any = getattr(_CHECKS, "Versions", None)
"""The same as ``VERSIONS``, for dictionaries of modules and classes only."""

VERSIONS: Any = WATCHES
if VERSIONS is not None and not _sees_attributes(VERSIONS):
    VERSIONS = None
"""``VERSIONS(dicts)`` watches a tuple of dictionaries; ``unchanged(None)``: none was written;
``written()``: which.
"""
