"""Owners of files (the user, a library, torch or symshape), and locations in the user's program."""

from __future__ import annotations

import bdb
import contextlib
import functools
import inspect
import linecache
import logging
import pdb
import re
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch

import guards
import meta_fns
from guards.sets.origin import Origin
from symshape.torch_internals.operators import wrapped_in_a_warning


def _file(module: ModuleType) -> str:
    return str(module.__file__)


def _folder(module: ModuleType) -> str:
    return f"{Path(_file(module)).parent}/"


OURS = (f"{Path(__file__).parent}/", _folder(guards), _folder(meta_fns))
"""The folders of symshape's own code."""
_TORCH = (_folder(torch),)
_INSTALLED = tuple(
    {
        f"{Path(sysconfig.get_path(name))}/"
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
)
_LAYERS = f"{Path(_file(torch.nn)).parent}/modules/"
_MODULE_CALLS = frozenset({"_call_impl", "_wrapped_call_impl"})
_TRACES = f"{Path(__file__).parent}/tracing/capture.py"
"""The file that runs traced code: frames below are the program's, frames above belong to the caller
of the trace.
"""
_OPTIMISERS = _folder(torch.optim)
_FROZEN = ("<frozen",)
_GENERATED = ("<symshape ",)
_GRAPHS = "<symshape graph"
_DEPRECATED = wrapped_in_a_warning  # of what is wrapped in a warning: typing_extensions
_BETWEEN = ("<string>", _DEPRECATED, *map(_file, (contextlib, functools, warnings)))
_DESCRIBING = (_folder(logging), *map(_file, (warnings, traceback, pdb, bdb)))

# How the names of files begin, for each question below.
_PASSED_OVER = (*OURS, *_TORCH, *_FROZEN, *_GENERATED, *_BETWEEN)
_LIBRARIES = (*OURS, *_TORCH, *_FROZEN, *_INSTALLED)
_DESCRIBERS = (*OURS, *_TORCH, *_DESCRIBING)


@lru_cache(maxsize=4096)
def is_users(filename: str) -> bool:
    """Return whether a file belongs to the user's program or to libraries that the program
    calls.
    """
    return not filename.startswith(_PASSED_OVER)


@lru_cache(maxsize=4096)
def is_ours(filename: str) -> bool:
    """Return whether a file belongs to symshape, or to the packages below it."""
    return filename.startswith(OURS)


@lru_cache(maxsize=4096)
def is_torchs(filename: str) -> bool:
    """Return whether a file belongs to torch."""
    return filename.startswith(_TORCH)


@lru_cache(maxsize=4096)
def is_library(filename: str) -> bool:
    """Return whether a file belongs to an installed library (or to Python, torch or symshape)."""
    return (
        filename.startswith(_LIBRARIES)
        or "/site-packages/" in filename
        or "/dist-packages/" in filename
    )


@lru_cache(maxsize=4096)
def describes(filename: str) -> bool:
    """Return whether a file makes texts for people: our own and torch's messages, logs, warnings,
    tracebacks.
    """
    return filename.startswith(_DESCRIBERS)


def is_optimisers(filename: str) -> bool:
    """Return whether a file belongs to torch's optimisers and schedulers, which are a part of the
    traced program.
    """
    return filename.startswith(_OPTIMISERS)


def user_frame() -> FrameType | None:
    """Return the innermost frame of the user's program, or None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def name_of(fn: Callable[..., Any]) -> str:
    """Return a function's or a module's name for messages."""
    return getattr(fn, "__qualname__", None) or type(fn).__name__


Location = tuple[str, int, str]
"""A place in the user's program: file, line, function."""

_stated: ContextVar[Location | None] = ContextVar("stated", default=None)


@contextlib.contextmanager
def at(location: Location | None) -> Iterator[None]:
    """Set the user's line within the block, for programs run from a graph, whose own frames say
    nothing.
    """
    token = _stated.set(location)
    try:
        yield
    finally:
        _stated.reset(token)


def stated_location() -> Location | None:
    """Return the line that :func:`at` has set; None outside its blocks."""
    return _stated.get()


def user_location(own: int = 0) -> Location | None:
    """Return the current line of the user's program; ``own`` frames that called this one are known
    to be ours.
    """
    stated = _stated.get()
    if stated is not None:
        return stated
    # frames that are passed over are never made into objects
    frame: FrameType | None = sys._getframe(1 + own)
    while frame is not None:
        if _is_placed(frame.f_code.co_filename):
            found = _location_of(frame)
            if found is not None:
                return found
        frame = frame.f_back
    return None


def _location_of(frame: FrameType) -> Location | None:
    """Return the user's line of a frame of the user's, or of a generated graph; None if it is not
    known.
    """
    if is_users(frame.f_code.co_filename):
        return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname
    lines = frame.f_globals.get("__symshape_steps__")
    found: Location | None = (
        None if lines is None else lines.location(frame.f_lineno, frame.f_locals.get("lap", 0))
    )
    return found


@lru_cache(maxsize=4096)
def _is_placed(filename: str) -> bool:
    """Return whether lines of a file have a place in the user's program: the user's, and those of
    generated graphs.
    """
    return is_users(filename) or filename.startswith(_GRAPHS)


def raised_at(error: BaseException, default: str = "an unknown place") -> str:
    """Return the user's line that an error passed last; ``default`` if it passed none."""
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_users(frame.f_code.co_filename)
    ]
    if not frames:
        return default
    frame, line = frames[-1]
    return str(origin_of((frame.f_code.co_filename, line, frame.f_code.co_qualname)))


def defined_at(fn: Callable[..., Any]) -> str:
    """Return the line that defines a function, or the ``forward`` of a module."""
    code = getattr(inspect.unwrap(getattr(fn, "forward", fn)), "__code__", None)
    if code is None:
        return "an unknown place"
    return str(origin_of((code.co_filename, code.co_firstlineno, code.co_qualname)))


def origin(op: str = "", rule: str = "") -> Origin:
    """Return the user's file, line and source text, with the layer of ``torch.nn``, the op and the
    rule that asked.

    Where a layer runs that the user's own code did not call (in a ``Sequential`` that is traced
    itself), the line is the layer's.
    """
    location = user_location()
    layer = None if _stated.get() is not None else _layer()
    if layer is not None:
        (file, line), name, called = layer
        within = f"layer {name}"
        location = (
            (file, line, within) if location is None or not called else _inside(location, within)
        )
    return origin_of(location, op, rule)


def _inside(location: Location, layer: str) -> Location:
    file, line, function = location
    return file, line, f"{function}, {layer}"


def _layer() -> tuple[tuple[str, int], str, bool] | None:
    """Return the innermost layer of ``torch.nn`` that runs below the user's innermost line, or
    None.

    Returns:
        Its file and line, its name in the outermost module that runs with its class, and whether a
        line of the traced program called it (else only the line that asked for the trace is the
        user's).
    """
    frame: FrameType | None = sys._getframe(2)
    place: tuple[str, int] | None = None
    inner: Any = None
    while frame is not None and not is_users(file := frame.f_code.co_filename) and file != _TRACES:
        if place is None and file.startswith(_LAYERS) and frame.f_code.co_name not in _MODULE_CALLS:
            inner = frame.f_locals.get("self")
            place = (file, frame.f_lineno) if isinstance(inner, torch.nn.Module) else None
        frame = frame.f_back
    if place is None:
        return None
    called, outer = frame is not None and frame.f_code.co_filename != _TRACES, inner
    back: FrameType | None = sys._getframe(2)
    while back is not None and back.f_code.co_filename != _TRACES:
        if back.f_code.co_name == "_call_impl" and isinstance(
            found := back.f_locals.get("self"), torch.nn.Module
        ):
            outer = found
        back = back.f_back
    name, kind = _name_in(outer, inner), type(inner).__name__
    return place, f"{name} ({kind})" if name else kind, called


def _name_in(outer: torch.nn.Module, inner: torch.nn.Module) -> str:
    """Return the name of a module in another one; empty for the module itself, and where nothing
    leads there.
    """
    pending, seen = [("", outer)], set()
    while pending:
        prefix, module = pending.pop()
        if module is inner:
            return prefix.rstrip(".")
        if id(module) not in seen:
            seen.add(id(module))
            inside = list(module.__dict__.get("_modules", {}).items())
            pending += [(f"{prefix}{name}.", each) for name, each in inside if each is not None]
    return ""


def origin_of(location: Location | None, op: str = "", rule: str = "") -> Origin:
    """Return a location with its source text."""
    if location is None:
        return Origin(file="", line=0, op=op, rule=rule)
    file, line, function = location
    try:
        source = linecache.getline(file, line)
    except ValueError:  # a name from a stored file that no file system takes
        source = ""
    return Origin(file, line, function, source.strip(), op, rule)


_TRACE_LINE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


@lru_cache(maxsize=4096)
def location_in(stack_trace: str | None) -> Location | None:
    """Return the innermost line of the user's program in a stack trace as FX nodes store them."""
    lines = [match for match in _TRACE_LINE.findall(stack_trace or "") if is_users(match[0])]
    return (lines[-1][0], int(lines[-1][1]), lines[-1][2]) if lines else None
