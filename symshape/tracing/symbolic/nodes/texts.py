"""The text of a symbolic number or tensor: its value for the traced program, its name for people.

A program may compute with the text of a size (a key, a file name, a branch on ``"8"``).  Its text
must be the one that eager gives, so the size is fixed by a guard.  Messages need no guard: they
show names.  Messages are the texts made by torch, symshape and Python's own ``logging``,
``warnings``, ``traceback`` and debugger, and what the program prints.  A warning of torch's shows
the values of the call, without a guard (:func:`with_values`).
"""

from __future__ import annotations

import io
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from symshape.errors import SymShapeError, refusals_noted
from symshape.graph.assertion_messages import Message, Places
from symshape.tracing.symbolic.nodes.deferred_messages import is_unsaid
from symshape.user_code import describes

_thread = threading.local()


@contextmanager
def values() -> Iterator[None]:
    """Return a context in which texts of symbolic numbers in this thread are made for the traced
    program.
    """
    outer, _thread.names = getattr(_thread, "names", None), {}
    try:
        with _set(True):
            yield
    finally:
        _thread.names = outer


@contextmanager
def _set(asked: bool) -> Iterator[None]:
    before = getattr(_thread, "asked", False)
    _thread.asked = asked
    try:
        yield
    finally:
        _thread.asked = before


def wants_value(depth: int = 1, *, formats: bool = False) -> bool:
    """Return whether a text is made for the program itself; ``depth`` is the caller's distance to
    the asking frame.

    ``formats``: the text comes from formatting, and may be part of a message that is never shown.
    """
    if not getattr(_thread, "asked", False):
        return False
    frame = sys._getframe(depth + 1)
    asker = frame.f_code.co_filename
    wants = not describes(asker) or asker == __file__  # plain_print acts for the program
    return wants and not (formats and is_unsaid(frame))


def formatted(number: Any, spec: str, kind: type) -> str:
    """Return ``format(number, spec)``: with the value (and a guard) for the program, with the plain
    name for people.
    """
    if not wants_value(depth=2, formats=True):
        return named(str(number.node), number.node, spec)
    places = open_places()
    return format(kind(number), spec) if places is None else places.mark(number.node.term, spec)


def named(name: str, node: Any, spec: str = "") -> str:
    """Return the name of a number, and note it for :func:`with_values`."""
    names = getattr(_thread, "names", None)
    if names is not None:
        names[name] = (node, spec)
    return name


def with_values(text: str) -> str:
    """Return a text of torch's with the call's values in the place of the names of numbers.

    Only names that the trace has put into texts are replaced.  The number gets no guard.
    """
    names = getattr(_thread, "names", None)
    if not names:
        return text
    found = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))

    def value(match: re.Match[str]) -> str:
        node, spec = names[match[0]]
        hint = node.hint
        return match[0] if hint is None else format(hint, spec)

    return re.sub(rf"(?<![\w.])(?:{found})(?!\w)", value, text)


def open_places() -> Places | None:
    """Return the places of numbers that a message inserts when the graph runs; None if texts
    contain the numbers.
    """
    return getattr(_thread, "places", None)


def to_be_said(message: str | Callable[[], str]) -> Message:
    """Return the message of a check as a failing run would show it; an empty one if that cannot be
    made.

    A program whose checks hold makes no message, so it must not fail because of one.
    """
    if not callable(message):
        return Message((message,) if message else ())
    before, _thread.places = open_places(), Places()
    try:
        with refusals_noted():  # a refused operation in a message that is never shown is allowed
            return _thread.places.message(str(message()))  # type: ignore[no-any-return]
    except Exception:  # the program's own function may raise anything
        return Message()
    finally:
        _thread.places = before


def said(message: str | Callable[[], str]) -> str:
    """Return the message of a check that fails while it is traced, with the numbers of the call if
    they are known.
    """
    try:
        with refusals_noted():
            return str(message()) if callable(message) else message
    except SymShapeError:  # the message depends on data
        return str(to_be_said(message))


def plain_print(*items: Any, **options: Any) -> None:
    """Print with the names of symbolic numbers; with their values if the program captures the
    output.
    """
    caught = options.get("file") is not None or isinstance(sys.stdout, io.StringIO)
    with _set(getattr(_thread, "asked", False) and caught):
        print(*items, **options)  # noqa: T201 - the program's own print
