"""Undo for a trace that fails: random generators that no graph owns, and printed output.

The program then runs again in eager and must find the same state. :mod:`symshape.tracing.state`
restores attributes, globals, closures and containers.
"""

from __future__ import annotations

import io
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from symshape.calls.generator_states import state_of

_DEBUGGERS = ("pdb", "bdb", "code", "codeop")


class _Held(io.TextIOBase):
    """Standard output that buffers what one thread writes; other threads, and debuggers, write
    through.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._thread = threading.get_ident()
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread or _debugging():
            return int(self._stream.write(text))
        self.texts.append(text)
        return len(text)

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Flush the stream below; this thread's text stays buffered."""
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _HeldText(_Held, io.StringIO):
    """The same buffer for a stream that is an ``io.StringIO``: a program may test whether its
    output is captured.
    """


def _debugging() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") in _DEBUGGERS:
            return True
        frame = frame.f_back
    return False


@contextmanager
def output_held() -> Iterator[None]:
    """Buffer what the thread prints inside; print it at the end, unless an error ends the block."""
    outer = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    held = {
        name: (_HeldText if isinstance(each, io.StringIO) else _Held)(each)
        for name, each in outer.items()
        if each is not None
    }
    for name, each in held.items():
        setattr(sys, name, each)
    lost = False
    try:
        yield
    except BaseException:
        lost = True
        raise
    finally:
        for name, each in held.items():
            if each.texts and not lost:
                outer[name].write("".join(each.texts))
        for name, each in held.items():
            if getattr(sys, name) is each:
                setattr(sys, name, outer[name])


@contextmanager
def generators_put_back() -> Iterator[None]:
    """Put the global generators (torch's, Python's, NumPy's) back if an error ends the block.

    NumPy's generator has no state to keep before ``numpy.random`` is imported, which takes longer
    than a small trace.
    """
    of_numpy = sys.modules.get("numpy.random")
    ours, pythons = state_of(torch.default_generator), random.getstate()
    numpys = of_numpy.get_state() if of_numpy is not None else None
    try:
        yield
    except BaseException:
        torch.set_rng_state(ours)
        random.setstate(pythons)
        if of_numpy is not None:
            of_numpy.set_state(numpys)
        raise
