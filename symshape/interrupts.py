"""Exceptions of signal handlers, as distinct from a program's own: they say nothing about the
program.
"""

from __future__ import annotations

import signal
import traceback
from types import CodeType
from typing import Any

__all__ = ["interrupt_in", "pass_on"]


def interrupt_in(error: BaseException) -> BaseException | None:
    """Return the exception of a signal's handler (of a time limit, say) behind an error; None if
    there is none.
    """
    codes = _codes_of_handlers()
    seen: set[int] = set()
    each: BaseException | None = error
    while codes and each is not None and id(each) not in seen:
        seen.add(id(each))
        if any(frame.f_code in codes for frame, _ in traceback.walk_tb(each.__traceback__)):
            return each
        each = each.__cause__ or each.__context__
    return None


def pass_on(error: BaseException) -> None:
    """Raises what a signal's handler raised, if this error is that or came of it."""
    found = interrupt_in(error)
    if found is not None:
        raise found


def _codes_of_handlers() -> set[CodeType]:
    found: set[CodeType] = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        for each in (handler, getattr(handler, "func", None), vars(type(handler)).get("__call__")):
            code = getattr(getattr(each, "__func__", each), "__code__", None)
            if isinstance(code, CodeType):
                found.add(code)
    return found
