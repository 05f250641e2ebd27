"""The reasons why calls cannot be traced or their traces would not pay, in words."""

from __future__ import annotations

import re
import warnings
from collections.abc import Hashable, Mapping
from typing import Any, cast

import attrs

from guards.sets.sources import spelled
from symshape.calls.arguments import TENSOR_TYPES
from symshape.errors import Reason
from symshape.graph.program import State
from symshape.runtime.entry import Entry
from symshape.user_code import user_frame

__all__ = ["Refusal", "fixed_by_both", "outline_of", "warn_user"]


@attrs.define(eq=False)
class Refusal:
    """A refused trace: its reason, its place in the user's code, and its counts.

    Attributes:
        reason: the error's message, with its notes.
        place: the user's line that caused it, as text.
        sure: whether the error proves that the program cannot be traced; else it may be the
            program's own error.
        state: the state that the trace had read when it was refused, if any.
        attempts: the number of refused traces.
        calls: the number of eager calls.
        values: the integers of refused calls, in order.
        own: the trace's error text if the program itself refuses the sizes (``ProgramError``); else
            empty.
        code: the code of the error, if it has one, else empty.
        kind: the error's kind of reason, of an ``UnsupportedError``.
        earlier: the calls and the attempts with each earlier reason, by its line.
    """

    reason: str
    place: str
    sure: bool
    state: State | None = None
    attempts: int = 0
    calls: int = 0
    values: dict[Hashable, None] = attrs.field(factory=dict)
    own: str = ""
    code: str = ""
    kind: Reason | None = None
    earlier: dict[str, tuple[int, int]] = attrs.field(factory=dict)

    def by_reason(self) -> dict[str, tuple[int, int]]:
        """Return the calls and the attempts with each reason, by its line with its code; the
        present reason last.
        """
        line = f"{self.first_line()} [{self.code}]" if self.code else self.first_line()
        past = [*self.earlier.values()]
        calls, attempts = (
            self.calls - sum(each[0] for each in past),
            self.attempts - sum(each[1] for each in past),
        )
        before = self.earlier.get(line, (0, 0))
        return {**self.earlier, line: (before[0] + calls, before[1] + attempts)}

    def text(self) -> str:
        """Return the reason with the user's line."""
        return self.reason if self.place in self.reason else f"{self.reason} (at {self.place})"

    def first_line(self) -> str:
        """Return the first line of the reason, with its data-dependent sizes or assumption, and the
        user's line.
        """
        first, _, rest = self.reason.partition("\n")
        if told := [f"{name} is {what}" for name, what in _UNKNOWN.findall(rest)]:
            first = f"{first.removesuffix('.')}: {', '.join(told)}"
        elif granted := _GRANTED.search(rest):
            first = f"{first.rstrip()} (it took for granted {granted[1]})"
        return first if self.place in first else f"{first} (at {self.place})"


_UNKNOWN = re.compile(r"^  (u\d+), (.*?),? was born at ", re.MULTILINE)
"""Matches the lines of an error that describe an unbacked symbol
(``tracing/symbolic/undecided.py``).
"""
_GRANTED = re.compile(
    r"^The trace took for granted (what only data tell: .*?)\. A program that fails", re.MULTILINE
)
"""Matches the line of an error that names a data assumption of the trace
(``tracing/trace_errors.py``).
"""


def fixed_by_both(first: Entry, second: Entry) -> tuple[tuple[str, str], str] | None:
    """Return two programs' different conditions from one line, and the line with its op; None if
    there are none.
    """
    names = spelled(first.program.sources)
    needs = {str(guard.origin): guard.text(names) for guard in first.program.guards if guard.origin}
    names = spelled(second.program.sources)
    for guard in second.program.guards:
        before = needs.get(str(guard.origin))
        if before is not None and before != guard.text(names):
            return (before, guard.text(names)), str(guard.origin)
    return None


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's program that is running."""
    frame = user_frame()
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    place, names = (frame.f_code.co_filename, frame.f_lineno), frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, *place, names.get("__name__"), registry)


def outline_of(args: Any, kwargs: Mapping[str, Any]) -> Hashable:
    """Return the outline of a call whose arguments cannot be read: their types, inside plain
    containers too.

    For tensors the outline includes what keeps them from being traced, so a sparse tensor says
    nothing about a dense one.
    """
    return (_outline(args), *((name, _outline(each)) for name, each in kwargs.items()))


_DEEPEST = 8  # levels of containers in an outline: an argument may contain itself


def _outline(value: Any, depth: int = _DEEPEST) -> Hashable:
    kind: type[Any] = type(value)
    if kind in TENSOR_TYPES:
        return kind, value.layout, value.is_quantized, value.is_conj(), value.is_neg()
    if depth and (kind is tuple or kind is list):
        return kind, *[_outline(each, depth - 1) for each in value]
    if depth and kind is dict:
        return kind, *[_outline(each, depth - 1) for each in value.values()]
    return cast(Hashable, kind)
