"""Calls that run eagerly, because they cannot be traced or because their trace would not pay now.

:class:`symshape.runtime.policy.programs.Programs` decides which traces pay. This module records the
reasons, warns and reports them, and remembers which calls need no new look-up meanwhile.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import attrs

from symshape import events, forks
from symshape.errors import (
    ConstraintViolation,
    DataDependentError,
    DimError,
    FallbackWarning,
    ProgramError,
    Reason,
    RunnerError,
    SymShapeError,
    UnsupportedError,
    code_of,
    full_text,
    note_of,
)
from symshape.graph.program import State
from symshape.interrupts import interrupt_in
from symshape.runtime.entry import Entry
from symshape.runtime.policy.programs import Account, Programs
from symshape.runtime.refusals import Refusal, fixed_by_both, outline_of, warn_user
from symshape.tracing.intercept.python_warnings import is_warning
from symshape.user_code import defined_at, name_of, raised_at

__all__ = ["EagerCall", "EagerCalls"]

_MOST_CALLS, _MOST_VALUES = 4096, 64  # eager calls stored by key; integers stored for a refusal
_LONGEST = 2000  # characters of a reason
_REMEDY = (
    "This warning comes once for each compiled function: explain_fallback() counts the calls, and "
    "symshape.compile(fn, fullgraph=True) raises instead."
)
_HELP = (
    "This warning comes once for each compiled function. Programs that exist still serve their "
    "sizes, and frequent sizes are still traced.\n  To avoid it, change that line so that the size "
    "is not used as a plain number or in a branch; dynamic={...} with the dimension makes it an "
    "error. symshape.Options(free_traces=None) traces every size."
)
_HELP_CONTAINERS = (
    "This warning comes once for each compiled function. Programs that exist still serve their "
    "calls, and frequent containers are still traced.\n  To avoid it, call the function with "
    "containers of the same length and keys, and let it read none that grows: append to such a "
    "list outside of the function. symshape.Options(free_traces=None) traces each of them."
)
_ALWAYS_RAISED = (ConstraintViolation, DimError, RunnerError, KeyboardInterrupt)
"""Errors that are always raised: broken constraints, wrong requests, and the user's interrupt."""


@attrs.frozen(eq=False)
class EagerCall:
    """A call that runs eagerly.

    Attributes:
        account: the account of its structure.
        about: its integers, in the form that the account uses.
        refusal: why it cannot be traced; None if its trace would not pay now.
        untried: whether no call with these integers was refused.
        by_state: whether a program would serve the call in an earlier state, which may come back.
        why: the reason, where it differs from the account's.
    """

    account: Account
    about: Hashable
    refusal: Refusal | None = None
    untried: bool = False
    by_state: bool = False
    why: str = ""

    @property
    def reason(self) -> str:
        """Return why the call runs eagerly, in a sentence."""
        return (
            self.why or self.account.reason if self.refusal is None else self.refusal.first_line()
        )


class EagerCalls:
    """The calls of one compiled function that run eagerly.

    Args:
        fn: the function.
        programs: decides which traces pay.
        fullgraph: refused calls raise.
        why: returns why the last trace was needed; used if no line of the program fixes a size.
        remedy: the end of the warning: where calls are counted, and how to make them raise.

    Attributes:
        clock: returns seconds.
        fallbacks: calls that ran eagerly because they cannot be traced.
        untraced: calls that ran eagerly because their trace would not pay.
        attempts: traces that were refused.
        seconds: the time that the refused traces took.
        by_call: eager calls by exact key.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        programs: Programs,
        fullgraph: bool = False,
        why: Callable[[], str] = str,
        remedy: str = _REMEDY,
    ) -> None:
        self._fn, self.programs, self._fullgraph = fn, programs, fullgraph
        self._why, self._remedy = why, remedy
        self.clock: Callable[[], float] = time.perf_counter
        self._lock = forks.lock()
        self.clear()

    def clear(self) -> None:
        """Forget all records; the next refusal warns again."""
        self.programs.clear()
        self.by_call: dict[Hashable, EagerCall] = {}
        self._changing: dict[Hashable, tuple[int, ...]] = {}
        self._unreadable = False
        self._warned: set[bool] = set()  # for refused calls, for others
        self.fallbacks = self.untraced = self.attempts = 0
        self.seconds = 0.0

    # -- whether a call runs eagerly
    def of_call(self, key: Hashable | None) -> EagerCall | None:
        """Return the remembered call with this exact key if it still runs eagerly (see
        :meth:`remember`), else None.
        """
        found = self.by_call.get(key)
        return found if found is not None and self._stands(found) else None

    def of_unreadable(self, args: Any, kwargs: Mapping[str, Any]) -> EagerCall | None:
        """Return the eager call for arguments with the same outline as unreadable ones, else
        None.
        """
        return self.of_call(outline_of(args, kwargs)) if self._unreadable else None

    def changes(self, structure: Hashable, places: tuple[int, ...]) -> None:
        """Record which integers of calls of a structure change from call to call."""
        if len(self._changing) >= _MOST_CALLS:
            self._changing.clear()
        self._changing[structure] = places

    def _account(self, structure: Hashable, values: tuple[int, ...]) -> tuple[Account, Hashable]:
        changing = self._changing.get(structure, ())
        special = tuple([place for place in changing if values[place] in (0, 1)])
        return self.programs.account(structure, values, special)

    def of_miss(
        self, structure: Hashable, values: tuple[int, ...], *, learns: bool = False
    ) -> EagerCall | None:
        """Return how a call that no program serves runs eagerly; None if it is to be traced.

        ``learns``: the call runs eagerly in any case, to learn which sizes change.
        """
        with self._lock:
            account, about = self._account(structure, values)
            if learns:
                return EagerCall(account, about, why=_FIRST)
            refusal = account.refusal
            call = EagerCall(
                account, about, refusal, refusal is not None and about not in refusal.values
            )
        if not self._stands(call):  # without the lock: comparing the state may run the user's code
            return None
        if refusal is None and account.reason in ("", _WAITS):
            before = account.reason
            account.reason, account.place = self._reason(account)
            if account.reason != before and events.anybody():
                events.emit(events.TracingPaused(name_of(self._fn), account.reason, account.place))
        return call

    def resting(self, structure: Hashable, values: tuple[int, ...]) -> EagerCall | None:
        """Return the eager call for this structure while the state of programs is not compared,
        else None.
        """
        account = self.programs.of(structure)
        if account is None or account.refusal is not None or not self.programs.rests(account):
            return None
        call = EagerCall(account, values, by_state=True)
        return call if self._stands(call) else None

    def _stands(self, call: EagerCall) -> bool:
        """Return whether a call that ran eagerly before still does: nothing has changed, or a trace
        would not pay.
        """
        programs, account, refusal = self.programs, call.account, call.refusal
        if refusal is None:
            if call.by_state and not programs.rests(account):
                return False
            if worth := programs.worth(account, call.about):
                account.next_look = 0.0
            return not worth
        if self._fullgraph:
            return not call.untried and refusal.state is not None and refusal.state.unchanged()
        if not programs.worth(account, call.about):
            return True
        if call.untried:
            return False
        if refusal.state is None or programs.rests(account):
            return True
        start = self.clock()
        unchanged = refusal.state.unchanged()
        programs.compared(account, (self.clock() - start) * 1e3)
        if not unchanged:  # earlier refusals say nothing about the new state
            refusal.values.clear()
            self.forget_calls()
        return unchanged

    def remember(self, key: Hashable, call: EagerCall) -> None:
        """Store an eager call by its exact key, for :meth:`of_call`."""
        with self._lock:
            if len(self.by_call) >= _MOST_CALLS:
                self.by_call = {}
            self.by_call[key] = call

    def forget_calls(self) -> None:
        """Forget the stored calls, to look them up again: a new program may serve them, or the
        state has changed.
        """
        self.by_call = {}

    # -- traces
    def passes(self, error: BaseException) -> bool:
        """Return whether an error of a trace is raised to the user; after any other error the
        function runs eagerly.

        An error from a signal handler is raised: it interrupts the call and says nothing about the
        program. A program that refuses these sizes (``ProgramError``) refuses them in its eager run
        too, after its earlier effects. A warning of C++ that a filter has made an error may not
        come again.
        """
        if isinstance(error, _ALWAYS_RAISED) or interrupt_in(error) is not None:
            return True
        if is_warning(error, of_c=True):
            return True
        return (
            self._fullgraph
            and isinstance(error, SymShapeError)
            and not isinstance(error, ProgramError)
        )

    def traced(
        self,
        structure: Hashable,
        values: tuple[int, ...],
        entry: Entry,
        seconds: float,
        call: int = 0,
        leaves: int = 0,
    ) -> None:
        """Record a trace: its program, its seconds, the number of its call and that call's number
        of leaves.
        """
        last = weakref.ref(entry)
        with self._lock:
            self.forget_calls()
            account, about = self._account(structure, values)
            slots = zip(entry.program.slots, values, strict=False)
            constants = tuple(
                [(at, value) for at, (slot, value) in enumerate(slots) if not slot.term.symbols]
            )
            account.programs = (*account.programs[-1:], last)
            if events.anybody():
                what = f"program {entry.number} of {name_of(self._fn)}"
                events.emit(events.Bought(what, seconds * 1e3, self.programs.why(account, about)))
            self.programs.traced(
                *(account, about, seconds * 1e3),
                constants=constants,
                served_again=lambda: _served_again(last()),
                call=call,
                leaves=leaves,
            )

    def refused(
        self,
        structure: Hashable,
        values: tuple[int, ...],
        error: BaseException,
        seconds: float,
        *,
        state: State | None,
        sure: bool | None = None,
        place: str | None = None,
    ) -> EagerCall:
        """Record that a trace was refused with this error, and return the eager call.

        Args:
            structure: the call's structure.
            values: the call's integers.
            error: the error that the trace raised.
            seconds: how long the attempt took.
            state: the state that the trace had read.
            sure: whether the error proves that the program cannot be traced; None: decided by the
                error's class.
            place: the user's line; empty if the error's text names it, None if its traceback does.
        """
        sure = isinstance(error, (UnsupportedError, DataDependentError)) if sure is None else sure
        said = full_text(error)
        reason = said if sure else f"{type(error).__name__} while it was traced: {said}"
        if place is None:
            place = raised_at(error, default="") or defined_at(self._fn)
        with self._lock:
            account, about = self._account(structure, values)
            refusal = account.refusal or Refusal(reason, place, sure)
            if refusal.reason != reason[:_LONGEST] and len(refusal.earlier) < _MOST_VALUES:
                refusal.earlier = refusal.by_reason()
            refusal.reason, refusal.place, refusal.sure, refusal.state = (
                reason[:_LONGEST],
                place,
                sure,
                state,
            )
            refusal.own = str(error) if isinstance(error, ProgramError) else ""
            refusal.code, refusal.kind = (
                code_of(error),
                error.reason if isinstance(error, UnsupportedError) else None,
            )
            if len(refusal.values) >= _MOST_VALUES:
                refusal.values.clear()
            refusal.values[about] = None
            refusal.attempts += 1
            account.refusal = refusal
            self.attempts += 1
            self.seconds += seconds
            self.programs.refused(account, about, seconds * 1e3)
            return EagerCall(account, about, refusal)

    def unreadable(
        self, args: Any, kwargs: Mapping[str, Any], error: BaseException, seconds: float
    ) -> EagerCall:
        """Record that the arguments of a call cannot be read, and return the eager call.

        An outline says less than the arguments themselves, so later calls with the same outline
        count as untried.
        """
        outline = outline_of(args, kwargs)
        call = attrs.evolve(
            self.refused(outline, (), error, seconds, state=None, sure=True), untried=True
        )
        self._unreadable = True
        self.remember(outline, call)
        return call

    # -- the eager run
    def run(
        self,
        call: EagerCall,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Run the function eagerly, once, on the call's own arguments; warn and report why.

        A trace's error that may be the program's own is reported only if the eager run succeeds.

        Raises:
            UnsupportedError: the eager run succeeded, and ``fullgraph`` was asked for.
            ProgramError: the function refused the sizes, as the trace said, and ``fullgraph`` was
                asked for.
        """
        refusal = call.refusal
        if refusal is None or refusal.sure:
            self._tell(call)
        if refusal is None:
            self.untraced += 1
            call.account.calls += 1
        else:
            self.fallbacks += 1
            refusal.calls += 1
        start = self.clock()
        try:
            result = fn(*args, **kwargs)
        except Exception as error:
            if self._fullgraph and refusal is not None and refusal.own:
                raise ProgramError(refusal.own, kind=type(error)) from error
            raise
        finally:
            with self._lock:
                self.programs.ran(call.account, call.about, (self.clock() - start) * 1e3)
        if refusal is None:
            return result
        if self._fullgraph:
            raise UnsupportedError(
                f"{name_of(self._fn)} cannot be traced, though it runs eagerly: {refusal.text()}",
                reason=Reason.RUNS_EAGERLY,
            )
        if not refusal.sure:
            self._tell(call)
        return result

    def _tell(self, call: EagerCall) -> None:
        """Emit an event for each eager call; warn for the first that was refused and the first that
        would not pay.
        """
        refusal, account, name = call.refusal, call.account, name_of(self._fn)
        refused = refusal is not None
        if events.anybody():
            told = (call.reason, account.place, FallbackWarning.code)
            if refusal is not None:
                told = refusal.reason, refusal.place, refusal.code
            events.emit(events.RanEagerly(name, *told))
        if refused in self._warned or call.reason in _QUIET:
            return
        advice = _HELP_CONTAINERS if account is self.programs.others else _HELP
        text, code = f"{account.reason}\n  {advice}", FallbackWarning.code
        if refusal is not None:
            text = (
                f"{name} cannot be traced and runs eagerly for calls like this one: "
                f"{refusal.text()}\n  {self._remedy}"
            )
            code = refusal.code or code
        warn_user(f"{text}\n  {note_of(code)}", FallbackWarning)
        # not before: where warnings are errors, each of these calls is one
        self._warned.add(refused)

    # -- in words
    def _reason(self, account: Account) -> tuple[str, str]:
        """Return why calls of an account are not traced, in sentences, and the user's line
        responsible.
        """
        name, here = name_of(self._fn), defined_at(self._fn)
        if account.special:
            return _SPECIAL, here
        if account.free > 0 or not self.programs.has_room(account):
            return _WAITS, here
        if account is self.programs.others:
            start = (
                f"{name} was traced {self.programs.traces} times, mostly for arguments in new "
                "containers (a list "
                f"that grows, other keys); each trace served little more than one call; {name} "
                "runs eagerly for calls with new containers from now on"
            )
            return f"{start}. {self._why()}", here
        start = (
            f"{name} was traced {account.traces} times for arguments like these, each time for "
            "little more than "
            f"the sizes of one call: {name} runs eagerly for calls with new sizes from now on"
        )
        entries = [entry for each in account.programs if (entry := each()) is not None]
        found = fixed_by_both(*entries) if len(entries) == 2 else None
        if found is None:
            return f"{start}. {self._why()}", here
        texts, origin = found
        return f"{start}. The program needs {texts[0]}, then {texts[1]}: {origin}", origin

    def lines(self) -> list[str]:
        """Return a line for each reason why traces would not pay: its eager calls, and it."""
        told: Counter[str] = Counter()
        for each in self.programs.accounts:
            told[each.reason] += each.calls
        return [
            f"{_times(calls, 'call')} ran eagerly since a trace would not pay: {reason}"
            for reason, calls in told.most_common()
            if calls
        ]

    def explain(self, calls: int, others: Sequence[str] = ()) -> str:
        """Return which of ``calls`` calls ran eagerly: for each reason its line, its calls and its
        traces.

        ``others`` are lines about calls that ran eagerly for other reasons; they come first.
        """
        name = name_of(self._fn)
        told: dict[str, tuple[int, int]] = {}
        for each in [
            found for account in self.programs.accounts if (found := account.refusal) is not None
        ]:
            for line, (number, attempts) in each.by_reason().items():
                before = told.get(line, (0, 0))
                told[line] = before[0] + number, before[1] + attempts
        if not self.fallbacks:
            return "\n".join(others) or f"Every call of {name} was traced: none fell back."
        lines = [*others, f"{name} ran eagerly in {_times(self.fallbacks, 'call')} of {calls:,}:"]
        for text, (number, attempts) in sorted(told.items(), key=lambda item: -item[1][0]):
            lines.append(f"  {_times(number, 'call')}, tried {_times(attempts, 'time')}: {text}")
        return "\n".join(lines)


_WAITS = "the next trace waits until eager calls have taken long enough to pay for it"
_FIRST = "the first calls on a CUDA device run eagerly: they tell which sizes change"
_SPECIAL = (
    "a size that changes is 0 or 1 in this call: a program for that size alone is traced once such "
    "calls have taken long enough to pay for it"
)
_QUIET = (_WAITS, _FIRST, _SPECIAL)
"""Temporary reasons, for which no warning is given."""


def _served_again(entry: Entry | None) -> bool:
    """Return whether an entry served more than the call that it was traced for."""
    return entry is not None and sum(seen.calls for seen in list(entry.seen.values())) > 1


def _times(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
