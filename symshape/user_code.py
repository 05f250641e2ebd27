"""Where in the user's program something happened: the first stack frame outside torch and symshape."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any

import torch

import guards
import meta_fns
from guards.sets.origin import Origin

_HERE = Path(__file__).parent
_OURS = tuple(
    f"{folder}/" for folder in (_HERE, *(Path(each.__file__ or "").parent for each in (guards, meta_fns, torch)))
)
_MACHINERY = ("<string>", "<frozen", str(Path(linecache.__file__).parent / "contextlib.py"))


@lru_cache(maxsize=4096)
def _is_users(filename: str) -> bool:
    return not filename.startswith(_OURS) and not filename.startswith(_MACHINERY)


def user_frame() -> FrameType | None:
    """The innermost frame of the user's program, or None when symshape was called from nowhere else."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def name_of(fn: Callable[..., Any]) -> str:
    """A function's or a module's name for messages."""
    return getattr(fn, "__qualname__", None) or type(fn).__name__


Location = tuple[str, int, str]
"""A place in the user's program: file, line, function."""

_stated: ContextVar[Location | None] = ContextVar("stated", default=None)


@contextmanager
def at(location: Location | None) -> Iterator[None]:
    """Inside, the user's line is this one: for programs run from a graph, whose own frames say nothing."""
    token = _stated.set(location)
    try:
        yield
    finally:
        _stated.reset(token)


def user_location() -> Location | None:
    """Where in the user's program we are."""
    stated = _stated.get()
    if stated is not None:
        return stated
    frame = user_frame()
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


def raised_at(error: BaseException) -> str:
    """The user's line that an error passed last."""
    frames = [(frame, line) for frame, line in walk_tb(error.__traceback__) if _is_users(frame.f_code.co_filename)]
    if not frames:
        return "an unknown place"
    frame, line = frames[-1]
    return str(origin_of((frame.f_code.co_filename, line, frame.f_code.co_qualname)))


def origin(op: str = "", rule: str = "") -> Origin:
    """The user's file, line and source text, with the op and the rule that were asking."""
    return origin_of(user_location(), op, rule)


def origin_of(location: Location | None, op: str = "", rule: str = "") -> Origin:
    """A location with its source text."""
    if location is None:
        return Origin(file="", line=0, op=op, rule=rule)
    file, line, function = location
    return Origin(file, line, function, linecache.getline(file, line).strip(), op, rule)


_TRACE_LINE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def location_in(stack_trace: str | None) -> Location | None:
    """The innermost line of the user's program in a stack trace as FX nodes keep them."""
    lines = [match for match in _TRACE_LINE.findall(stack_trace or "") if _is_users(match[0])]
    return (lines[-1][0], int(lines[-1][1]), lines[-1][2]) if lines else None
