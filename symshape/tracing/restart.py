"""Starting a trace again: one exception that asks for it, the settings of one attempt, and one
loop.

A trace cannot go on once it needs a setting that it did not begin with: loops unrolled, a memo
filled, sizes fixed.  It raises :class:`Restart`, whose ``change`` makes the settings of the next
attempt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import attrs

from guards.sets.sources import Source
from symshape.dims import Dim, Policy
from symshape.errors import Reason, SymShapeError, UnsupportedError, note_refusal, release_frames
from symshape.interrupts import pass_on

T = TypeVar("T")
MOST_ATTEMPTS = 32
"""Traces of one call.  Each memo may cost one, and the settings have eight combinations; more is no
progress.
"""


@attrs.define
class Attempt:
    """The settings of one attempt to trace a function for a call.

    Attributes:
        asked_for: the policies of sizes and numbers that the caller gave.
        policies: the policies of this attempt.
        unrolled_for: the restart that asked for unrolled loops; None if torch's loops become nodes
            of the graph.
        sizes_fixed: whether only sizes that the caller declared dynamic vary.
        compiling_asked: set where traced code asks ``torch.compiler.is_compiling()`` and is told
            yes.
        raised_compiling: the error of the attempt with that answer; set if this attempt answers no,
            as eager does.
    """

    asked_for: Mapping[Source, Dim | Policy]
    policies: Mapping[Source, Dim | Policy]
    unrolled_for: Restart | None = None
    sizes_fixed: bool = False
    compiling_asked: bool = False
    raised_compiling: str | None = None

    @classmethod
    def first(cls, policies: Mapping[Source, Dim | Policy]) -> Attempt:
        """Return the settings of the first attempt."""
        return cls(policies, policies)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Have :func:`current` return these settings in this thread within the block."""
        outer, _running.attempt = _running.attempt, self
        try:
            yield
        finally:
            _running.attempt = outer

    def add_note(self, error: SymShapeError) -> None:
        """Add the error of the attempt before to ``error``, if that attempt answered
        ``is_compiling()`` with yes.
        """
        if self.raised_compiling is not None:
            told = self.raised_compiling
            error.add_note(
                f"It was traced before with torch.compiler.is_compiling() true, and raised {told}"
            )


Change = Callable[[Attempt, str], Attempt | None]
"""Makes the next attempt's settings from the last one's and the error's text; None if no other
attempt would help.
"""


class Restart(BaseException):
    """A trace asks to be started again with other settings.

    A program's ``except Exception`` does not catch a restart.  A program that catches everything is
    started again all the same, because the restart is noted (``errors.refusals_noted``).  No
    restart leaves :func:`traced_with_restarts`.

    Args:
        text: what the program needs, for people.
        change: makes the settings of the next attempt.
        reason: of the error, where no other attempt is made.
        prepares: whether ``change`` does something outside of the trace first; then the function is
            the subject of ``text``, which begins with a verb.
    """

    def __init__(
        self, text: str, change: Change, reason: Reason, *, prepares: bool = False
    ) -> None:
        super().__init__(text)
        self.change, self.reason, self.prepares = change, reason, prepares
        note_refusal(self)

    def refused(self, name: str) -> UnsupportedError:
        """Return the error for the user where no other attempt is made, for the function called
        ``name``.

        The error has the restart's traceback, which shows the program's lines.  Raise it from the
        restart's cause.
        """
        text = f"{name} {self}" if self.prepares else str(self)
        return UnsupportedError(text, reason=self.reason).with_traceback(self.__traceback__)


class _Running(threading.local):
    """The attempt that runs in each thread."""

    attempt: Attempt | None = None


_running = _Running()


def current() -> Attempt:
    """Return the settings of the attempt that runs in this thread; outside of one, those of a first
    attempt.
    """
    return _running.attempt or Attempt.first({})


def loops_are_unrolled() -> bool:
    """Return whether torch's loops are unrolled for the sizes of the call, instead of being nodes
    of the graph.
    """
    return current().unrolled_for is not None


def needs_loops(text: str) -> Restart:
    """Return the restart of a trace that needs the steps of a loop that is a node of its graph."""

    def unroll(attempt: Attempt, _: str) -> Attempt:
        if attempt.unrolled_for is not None:
            raise attempt.unrolled_for.refused("the function") from None
        return attrs.evolve(attempt, policies=attempt.asked_for, unrolled_for=restart)

    restart = Restart(text, unroll, Reason.LOST_GRADIENTS)
    return restart


def with_fewer_symbols(attempt: Attempt, raised: str) -> Attempt | None:
    """Return settings after an error of the program's or of torch's, which may be an error about
    symbols.

    If traced code asked whether a compiler traces it, the next attempt answers no.  Else sizes are
    fixed.
    """
    if attempt.sizes_fixed:
        return None
    if attempt.compiling_asked:
        return attrs.evolve(Attempt.first(attempt.asked_for), raised_compiling=raised)
    declared = {
        source: policy for source, policy in attempt.asked_for.items() if policy is not Policy.AUTO
    }
    if len(declared) == len(attempt.asked_for):
        return None
    return Attempt(declared, declared, sizes_fixed=True, raised_compiling=attempt.raised_compiling)


def after(prepare: Callable[[], Any]) -> Change:
    """Return a change that prepares something outside of the trace, and changes no setting."""

    def change(attempt: Attempt, _: str) -> Attempt | None:
        try:
            prepare()
        except Exception:  # the program itself may catch it
            return None
        return attempt

    return change


def traced_with_restarts(
    name: str,
    attempt: Attempt,
    trace: Callable[[Attempt], T],
    change_after: Callable[[Exception | Restart, Attempt], Change],
) -> T:
    """Return the result of a trace, which is started again as often as it needs other settings.

    Args:
        name: of the function.
        attempt: the settings of the first attempt.
        trace: makes one attempt.
        change_after: returns the change of settings after an error; raises an error if there is to
            be none.

    Raises:
        SymShapeError: no attempt succeeded; a restart that does not help is raised as
            ``UnsupportedError``.  The function's own exceptions pass through.
    """
    for number in range(1, MOST_ATTEMPTS + 1):
        try:
            with attempt.in_force():
                return trace(attempt)
        except (Exception, Restart) as error:
            pass_on(error)
            try:
                following = change_after(error, attempt)(attempt, _text(error))
                if following is None or number == MOST_ATTEMPTS:
                    if isinstance(error, Restart):
                        raise error.refused(name) from error.__cause__
                    raise
            except SymShapeError as refused:
                attempt.add_note(refused)
                raise
            release_frames(error)
            attempt = following
    raise AssertionError("the last attempt returns or raises")


def _text(error: BaseException) -> str:
    kind = UnsupportedError if isinstance(error, Restart) else type(error)
    return f"{kind.__name__}: {error}"
