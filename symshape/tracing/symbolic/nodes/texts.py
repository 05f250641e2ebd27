"""What ``str()`` of a symbolic number or tensor says: its value to the program that is traced, its name to people.

A program may compute with the text of a size (a key, a file name, a branch on ``"8"``), so the text has to be the one
that eager gives, and the size is fixed by a guard.  Messages need no guard: what torch, symshape and Python's own
``logging``, ``warnings``, ``traceback`` and debugger format, and what the program prints, shows names.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from symshape.errors import SymShapeError, refusals_noted
from symshape.graph.assertion_messages import Message, Places
from symshape.tracing.symbolic.nodes.unsaid import is_unsaid
from symshape.user_code import describes

_thread = threading.local()


@contextmanager
def values() -> Iterator[None]:
    """Inside, in this thread, a text of a symbolic number is asked for by the traced program."""
    with _set(True):
        yield


@contextmanager
def _set(asked: bool) -> Iterator[None]:
    before = getattr(_thread, "asked", False)
    _thread.asked = asked
    try:
        yield
    finally:
        _thread.asked = before


def wants_value(depth: int = 1, *, formats: bool = False) -> bool:
    """Whether the text is for the program itself; ``depth`` is how far up the stack of the caller the asker stands.

    ``formats``: the asker formats, and what it makes may be a message that nobody reads.
    """
    if not getattr(_thread, "asked", False):
        return False
    frame = sys._getframe(depth + 1)
    asker = frame.f_code.co_filename
    wants = not describes(asker) or asker == __file__  # plain_print speaks for the program
    return wants and not (formats and is_unsaid(frame))


def formatted(number: Any, spec: str, kind: type) -> str:
    """``format(number, spec)``: with the value for the program, which a guard fixes; the plain name for people."""
    if not wants_value(depth=2, formats=True):
        return str(number.node)
    places = open_places()
    return format(kind(number), spec) if places is None else places.mark(number.node.term, spec)


def open_places() -> Places | None:
    """Where the numbers of a text are noted that a run may have to say; None where texts hold numbers themselves."""
    return getattr(_thread, "places", None)


def to_be_said(message: str | Callable[[], str]) -> Message:
    """The message of a check as a run that fails would make it; without a text where it cannot be made so.

    A program that makes no message, because its checks hold, must not fail for one.
    """
    if not callable(message):
        return Message((message,) if message else ())
    before, _thread.places = open_places(), Places()
    try:
        with refusals_noted():  # what is refused in a message that is never shown, is not
            return _thread.places.message(str(message()))  # type: ignore[no-any-return]
    except Exception:  # whatever the program's own function may raise
        return Message()
    finally:
        _thread.places = before


def said(message: str | Callable[[], str]) -> str:
    """The message of a check that fails while it is traced: with the call's numbers, as far as they are known."""
    try:
        with refusals_noted():
            return str(message()) if callable(message) else message
    except SymShapeError:  # it depends on data
        return str(to_be_said(message))


def plain_print(*items: Any, **options: Any) -> None:
    """``print``, for which symbolic numbers show their names; unless the program catches what it prints."""
    caught = options.get("file") is not None or isinstance(sys.stdout, io.StringIO)
    with _set(getattr(_thread, "asked", False) and caught):
        print(*items, **options)  # noqa: T201 - the program's own print
