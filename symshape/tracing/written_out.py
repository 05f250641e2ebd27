"""Whether loops of torch's are nodes of a graph, or written out, step by step, for the sizes of the call.

A function that computes gradients itself needs the steps; that it does so is known after the loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from symshape.errors import UnsupportedError

P = ParamSpec("P")
T = TypeVar("T")
_written_out: ContextVar[bool] = ContextVar("written_out", default=False)


class NeedsLoops(UnsupportedError):
    """A trace needs the steps of a loop that it made a node of."""


def loops_are_written_out() -> bool:
    """Whether loops are to be written out."""
    return _written_out.get()


def written_out_where_needed(trace: Callable[P, T]) -> Callable[P, T]:
    """A trace of a function, once more with its loops written out if it needs their steps."""

    @functools.wraps(trace)
    def traced(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return trace(*args, **kwargs)
        except NeedsLoops as error:
            if _written_out.get():
                raise
            needed = error
        token = _written_out.set(True)
        try:
            return trace(*args, **kwargs)
        except NeedsLoops:
            raise needed from None
        finally:
            _written_out.reset(token)

    return traced
