"""The text of a symbolic number or tensor: its value for the traced program, its name for people.

A program may compute with the text of a size (a key, a file name, a branch on ``"8"``).  Its text
must be the one that eager gives, so the size is fixed by a guard.  Messages need no guard: they
show names.  Messages are the texts made by torch, symshape and Python's own ``logging``,
``warnings``, ``traceback`` and debugger, and what the program prints.  A warning of torch's shows
the values of the call, without a guard (:func:`with_values`).
"""

from __future__ import annotations

import ast
import io
import linecache
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType
from typing import Any

from symshape.errors import SymShapeError, refusals_noted
from symshape.graph.assertion_messages import Message, Places
from symshape.torch_internals import operators
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
    frame: FrameType = sys._getframe(depth + 1)
    if frame.f_code is call_for_program.__code__:
        frame = frame.f_back.f_back  # type: ignore[union-attr,assignment]
    return _is_programs(frame) and not (formats and is_unsaid(frame))


def _is_programs(frame: FrameType) -> bool:
    asker = frame.f_code.co_filename
    return not describes(asker) or asker == __file__  # plain_print acts for the program


def wants_text(passed: Collection[str]) -> bool:
    """Return whether the text of a real tensor is made for the program itself; frames of the files
    in ``passed`` only pass the question on.
    """
    if not getattr(_thread, "asked", False):
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in passed:
        frame = frame.f_back
    return frame is not None and _is_programs(frame) and not is_unsaid(frame)


def call_for_program(method: Callable[..., str], *args: Any, **kwargs: Any) -> str:
    """Return the text that a method makes for the program: the caller of the caller asks for it."""
    return method(*args, **kwargs)


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


# -- Texts that are shown only if a check fails: f-strings that are the message of a checking
# function.
#
# ``torch_compilable_check(found == wanted, f"found {found}")`` makes its text even if the check
# holds. When the check is traced, the text is never shown. When the check fails in a run, the
# function runs eagerly and makes eager's text.
_CHECKS = {("transformers.utils.import_utils", "torch_compilable_check")}
"""The checking functions of other libraries, by module and name; their second argument is a
message.
"""
_OF_TORCH = {id(operators.asserting)}
_NAMES = frozenset(("msg", "message"))
_FORMATS = frozenset(("format", "format_map", "__format__"))


def is_unsaid(frame: FrameType) -> bool:
    """Return whether all texts that the current line formats are messages of checking functions."""
    names = _messages(frame.f_code.co_filename).get(frame.f_lineno)
    return bool(names) and all(_only_checks(name, frame) for name in names or ())


def _only_checks(name: tuple[str, ...], frame: FrameType) -> bool:
    code = frame.f_code
    if not name or name[0] in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        return False
    found: Any = frame.f_globals.get(name[0])
    for each in name[1:]:
        found = getattr(found, each, None)
    if id(found) in _OF_TORCH:
        return True
    return (getattr(found, "__module__", ""), getattr(found, "__qualname__", "")) in _CHECKS


@lru_cache(maxsize=256)
def _messages(filename: str) -> dict[int, set[tuple[str, ...]]]:
    """Return, by line, the functions whose messages the f-strings are; an empty name for any other
    formatting.
    """
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return {}
    found: dict[int, set[tuple[str, ...]]] = {}
    for node, name in _formatting(tree, ()):
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            found.setdefault(line, set()).add(name)
    return found


def _formatting(node: ast.AST, name: tuple[str, ...]) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    """Yield each f-string and each call of ``format`` under a node, with the function whose message
    it is.
    """
    if isinstance(node, ast.JoinedStr):
        yield node, name
        name = ()  # texts formatted inside it are not the message itself
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _formatting(part.value, ())
        return
    messages: list[ast.AST] = []
    callee: tuple[str, ...] = ()
    if isinstance(node, ast.Call):
        callee = _dotted(node.func)
        if callee and callee[-1] in _FORMATS:
            yield node, ()
        messages = [*node.args[1:2], *(each.value for each in node.keywords if each.arg in _NAMES)]
    for child in ast.iter_child_nodes(node):
        inner = child.value if isinstance(child, ast.keyword) else child
        yield from _formatting(inner, callee if any(inner is each for each in messages) else ())


def _dotted(node: ast.expr) -> tuple[str, ...]:
    """Return the names of ``a.b.c``; for any other expression an empty name and the last attribute,
    if it has one.
    """
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return (*before, node.attr) if before else ("", node.attr)
    return ()
