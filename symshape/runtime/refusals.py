"""Calls that cannot be traced: what refused each, and when it is worth trying again.

A refused call runs as it is.  Tracing is tried again only for what is new (other sizes, another structure, a state that
has changed), and only while that costs next to nothing: the first few attempts are free, every later one has to be
earned by the time that refused calls have run as they are, so that trying again takes at most ``SHARE`` of it, and so
does looking whether the state has changed.
"""

from __future__ import annotations

import re
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, cast

import attrs

from symshape import events, forks
from symshape.calls.arguments import TENSOR_TYPES
from symshape.errors import (
    ConstraintViolation,
    DataDependentError,
    DimError,
    FallbackWarning,
    ProgramError,
    RunnerError,
    SymShapeError,
    UnsupportedError,
)
from symshape.graph.program import State
from symshape.interrupts import interrupt_in
from symshape.user_code import defined_at, name_of, raised_at, user_frame

SHARE = 0.025
"""Of the time that refused calls run as they are: what attempts may take, and again what looks at the state may."""
FREE, FREE_IN_ALL = 3, 16
"""Attempts that need not be earned: for one structure, and for all structures of one function."""
_MOST, _MOST_CALLS, _MOST_VALUES = 64, 4096, 64
_LONGEST = 2000  # characters of a reason
_REMEDY = (
    "Said once for each compiled function: explain_fallback() counts the calls, and "
    "symshape.compile(fn, fullgraph=True) raises instead."
)
_ALWAYS_RAISED = (ConstraintViolation, DimError, RunnerError, KeyboardInterrupt)
"""What was asked of us and cannot be had; the user's interrupt."""


@attrs.define(eq=False)
class Refusal:
    """Why calls of one structure run as they are.

    Attributes:
        reason: the error's message.
        place: the user's line that it came from, as text.
        sure: whether the error says that the program cannot be traced; else it may be the program's own.
        state: what the trace had read when it was refused, if it came so far.
        attempts: traces that were refused.
        calls: calls that ran as they are.
        values: the integers of calls that were refused.
        next_look: the seconds of ``Refusals.served`` from which on the state may be looked at again.
        own: what the trace said where the program itself refuses the sizes (``ProgramError``); else empty.
    """

    reason: str
    place: str
    sure: bool
    state: State | None = None
    attempts: int = 0
    calls: int = 0
    values: dict[tuple[int, ...], None] = attrs.field(factory=dict)
    next_look: float = 0.0
    own: str = ""

    def text(self) -> str:
        """The reason with its place."""
        return self.reason if self.place in self.reason else f"{self.reason} (at {self.place})"

    def first_line(self) -> str:
        """The first line of the reason, with what only data tell of it, and its place."""
        first, _, rest = self.reason.partition("\n")
        if told := [f"{name} is {what}" for name, what in _UNKNOWN.findall(rest)]:
            first = f"{first.removesuffix('.')}: {', '.join(told)}"
        elif granted := _GRANTED.search(rest):
            first = f"{first.rstrip()} (it took for granted {granted[1]})"
        return first if self.place in first else f"{first} (at {self.place})"


_UNKNOWN = re.compile(r"^  (u\d+), (.*?),? was born at ", re.MULTILINE)
"""The lines of an error that say what a symbol is: see ``tracing/symbolic/undecided.py``."""
_GRANTED = re.compile(r"^The trace took for granted (what only data tell: .*?)\. A program that fails", re.MULTILINE)
"""So too of what was presumed: see ``tracing/explained.py``."""


class Refusals:
    """The refusals of one compiled function, bounded in number, and the calls that they sent to the function itself.

    Args:
        fn: the function.
        fullgraph: refused calls raise.
        clock: answers seconds.
        remedy: what the warning says at its end: where calls are counted, and how they would raise.

    Attributes:
        fallbacks: calls that ran as they are.
        attempts: traces that were refused.
        seconds: what those traces took.
        served: seconds that refused calls ran as they are.
        by_call: refusals by the keys of calls, each with whether their integers are untried.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        fullgraph: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        remedy: str = _REMEDY,
    ) -> None:
        self._fn = fn
        self._remedy = remedy
        self._fullgraph = fullgraph
        self._clock = clock
        self._lock = forks.lock()
        self.clear()

    def clear(self) -> None:
        """Forgets everything; the next refusal warns again."""
        self._by_structure: OrderedDict[Hashable, Refusal] = OrderedDict()
        self.by_call: dict[Hashable, tuple[Refusal, bool]] = {}
        self._unreadable = False
        self._warned = False
        self._free = FREE_IN_ALL
        self._earned_by_now = 0.0
        self.fallbacks = self.attempts = 0
        self.seconds = self.served = 0.0

    # -- looking one up
    def of_call(self, key: Hashable | None) -> Refusal | None:
        """The refusal that stands for the very call that this key tells (see :meth:`remember`)."""
        found = self.by_call.get(key)
        return found[0] if found is not None and self._stands(*found) else None

    def of_structure(self, structure: Hashable, values: tuple[int, ...]) -> tuple[Refusal, bool] | None:
        """The refusal that stands for a call of this structure with these integers, and whether they are untried."""
        refusal = self._by_structure.get(structure)
        if refusal is None:
            return None
        untried = values not in refusal.values
        return (refusal, untried) if self._stands(refusal, untried) else None

    def of_unreadable(self, args: Any, kwargs: Mapping[str, Any]) -> Refusal | None:
        """The refusal that stands for a call whose arguments look as those of one that cannot be read."""
        return self.of_call(_outline_of(args, kwargs)) if self._unreadable else None

    def add_unreadable(self, args: Any, kwargs: Mapping[str, Any], error: BaseException, seconds: float) -> Refusal:
        """Writes down that the arguments of a call cannot be read.

        What they look like is less than what they are, so calls that look alike count as untried.
        """
        outline = _outline_of(args, kwargs)
        refusal = self.add(outline, (), error, seconds, state=None, sure=True)
        self._unreadable = True
        self.remember(outline, refusal, True)
        return refusal

    def remember(self, key: Hashable, refusal: Refusal, untried: bool) -> None:
        """Lets :meth:`of_call` find a refusal by the key of a call."""
        with self._lock:
            if len(self.by_call) >= _MOST_CALLS:
                self.by_call = {}
            self.by_call[key] = refusal, untried

    def forget_calls(self) -> None:
        """Has refused calls looked up anew: a program was traced, which may serve them, or the state has changed."""
        with self._lock:
            self.by_call = {}

    def _stands(self, refusal: Refusal, untried: bool) -> bool:
        """Whether a call is not to be tried again: there is nothing new to it, or trying is not earned yet.

        Where ``fullgraph`` was asked for trying is always earned: the call would not be served but raise.
        """
        if self._fullgraph:
            return not untried and refusal.state is not None and refusal.state.unchanged()
        free = refusal.attempts < FREE and self._free > 0
        if not free and self.served < self._earned_by_now:
            return True
        if untried:
            return False
        if refusal.state is None or self.served < refusal.next_look:
            return True
        start = self._clock()
        unchanged = refusal.state.unchanged()
        refusal.next_look = self.served + (self._clock() - start) / SHARE
        if not unchanged:  # what was refused before says nothing about now
            refusal.values.clear()
            self.forget_calls()
        return unchanged

    def passes(self, error: BaseException) -> bool:
        """Whether a trace's error is raised as it is: for others the function itself runs, with its own if it has one.

        So is what a signal's handler raised: it interrupts the call, and says nothing of the program.
        A program that refuses these sizes (``ProgramError``) refuses them as it runs, after what it did until then.
        """
        if isinstance(error, _ALWAYS_RAISED) or interrupt_in(error) is not None:
            return True
        return self._fullgraph and isinstance(error, SymShapeError) and not isinstance(error, ProgramError)

    # -- a new one
    def add(
        self,
        structure: Hashable,
        values: tuple[int, ...],
        error: BaseException,
        seconds: float,
        *,
        state: State | None,
        sure: bool | None = None,
        place: str | None = None,
    ) -> Refusal:
        """Writes down that a trace, which took so long, was refused with this error.

        Args:
            structure: of the call.
            values: its integers.
            error: what was raised.
            seconds: what the attempt took.
            state: what the trace had read.
            sure: whether this says that the program cannot be traced; None: if the error is of such a class.
            place: the user's line; empty where the error says it, None where its traceback does.
        """
        sure = isinstance(error, (UnsupportedError, DataDependentError)) if sure is None else sure
        said = "\n".join([str(error), *getattr(error, "__notes__", ())])
        reason = said if sure else f"{type(error).__name__} while it was traced: {said}"
        if place is None:
            place = raised_at(error, default="") or defined_at(self._fn)
        with self._lock:
            refusal = self._by_structure.setdefault(structure, Refusal(reason, place, sure))
            self._by_structure.move_to_end(structure)
            if len(self._by_structure) > _MOST:
                self._by_structure.popitem(last=False)
                self.by_call = {}
            refusal.reason, refusal.place, refusal.sure, refusal.state = reason[:_LONGEST], place, sure, state
            refusal.own = str(error) if isinstance(error, ProgramError) else ""
            if len(refusal.values) >= _MOST_VALUES:
                refusal.values.clear()
            refusal.values[values] = None
            free = refusal.attempts < FREE and self._free > 0
            refusal.attempts += 1
            self.attempts += 1
            self.seconds += seconds
            self._free -= free
            self._earned_by_now = self.served + seconds / SHARE
            return refusal

    # -- the call itself
    def run(self, refusal: Refusal, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Runs the function itself, once, with the call's own arguments; tells of the refusal if it is one.

        An error that may be the program's own is told only if the program runs without it.

        Raises:
            UnsupportedError: it runs without it, and ``fullgraph`` was asked for.
            ProgramError: it refuses the sizes, as the trace said, and ``fullgraph`` was asked for.
        """
        if refusal.sure:
            self._tell(refusal)
        refusal.calls += 1
        self.fallbacks += 1
        start = self._clock()
        try:
            result = fn(*args, **kwargs)
        except Exception as error:
            if self._fullgraph and refusal.own:
                raise ProgramError(refusal.own) from error
            raise
        finally:
            self.served += self._clock() - start
        if self._fullgraph:
            raise UnsupportedError(f"{name_of(self._fn)} cannot be traced, though it runs as it is: {refusal.text()}")
        if not refusal.sure:
            self._tell(refusal)
        return result

    def _tell(self, refusal: Refusal) -> None:
        """An event for each call, a warning for the first."""
        if events.anybody():
            events.emit(events.RanEagerly(name_of(self._fn), refusal.reason, refusal.place))
        if self._warned:
            return
        name = name_of(self._fn)
        warn_user(
            f"{name} cannot be traced and runs as it is (eager) for calls like this one: {refusal.text()}\n"
            f"  {self._remedy}",
            FallbackWarning,
        )
        self._warned = True  # not before: where warnings are errors, each of these calls is one

    def explain(self, calls: int, others: Sequence[str] = ()) -> str:
        """Which calls ran as they are, of so many: for each reason its line, its calls and its attempts.

        ``others`` are the lines of what ran as it is for another reason.
        """
        name = name_of(self._fn)
        told: dict[str, tuple[int, int]] = {}
        for each in list(self._by_structure.values()):
            before = told.get(each.first_line(), (0, 0))
            told[each.first_line()] = before[0] + each.calls, before[1] + each.attempts
        if not self.fallbacks:
            return "\n".join(others) or f"Every call of {name} was traced: none fell back."
        lines = [*others, f"{name} ran as it is (eager) in {_times(self.fallbacks, 'call')} of {calls:,}:"]
        for text, (number, attempts) in sorted(told.items(), key=lambda item: -item[1][0]):
            lines.append(f"  {_times(number, 'call')}, tried {_times(attempts, 'time')}: {text}")
        return "\n".join(lines)


def warn_user(message: str, category: type[Warning]) -> None:
    """Warns at the line of the user's program that is being run."""
    frame = user_frame()
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    place, names = (frame.f_code.co_filename, frame.f_lineno), frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, *place, names.get("__name__"), registry)


def _times(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _outline_of(args: Any, kwargs: Mapping[str, Any]) -> Hashable:
    """What a call looks like that cannot be read: the types of its arguments, inside plain containers too.

    Of tensors also what keeps them from being traced, so that a sparse tensor says nothing about a dense one.
    """
    return (_outline(args), *((name, _outline(each)) for name, each in kwargs.items()))


def _outline(value: Any) -> Hashable:
    kind: type[Any] = type(value)
    if kind in TENSOR_TYPES:
        return kind, value.layout, value.is_quantized, value.is_conj(), value.is_neg()
    if kind is tuple or kind is list:
        return kind, *map(_outline, value)
    if kind is dict:
        return kind, *map(_outline, value.values())
    return cast(Hashable, kind)
