"""Which misses are traced: a trace is an investment, and no stream of calls pays for useless ones for ever.

The first traces of a structure are free (``Options.free_traces``).  What is free is used up by traces that tell no new
sizes apart which the user asked to tell apart: a program that fixes a size which changes, or state that changes.  From
then on a miss runs the function as it is, and is traced only if that is earned: all such traces together take at most
``SHARE`` of the time that calls take, and only sizes are traced that have come for as long as their trace would take,
or that are tried at distances which double while what was tried serves no other call.  So it is after ``GROWN`` traces
in a row for calls of more leaves each, between which no program served a call: a list among the arguments that grows.

Where the sizes have programs, but none for the state of the world, each miss has compared the state of each program in
vain.  After ``VAIN`` such misses in a row calls run as they are, unseen, until they have taken ``1 / LOOKS`` times as
long as that took; then one looks again.
"""

from __future__ import annotations

import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import attrs

from guards.sets.sources import spelled
from symshape import events, forks
from symshape.errors import FallbackWarning
from symshape.runtime.entry import Entry
from symshape.runtime.refusals import warn_user
from symshape.user_code import defined_at, name_of

SHARE = 0.1
"""Of the time that the calls of a function take: what its traces may take that are not free."""
LOOKS, VAIN = 0.05, 4
"""Of the time that calls run as they are: what comparing the state with that of programs may take, after so many."""
IN_ALL = 8
"""How many times the free traces of one structure all structures of a function may use together."""
GROWN = 10
"""Traces in a row, each for a call of more leaves than the one before, after which a new structure is not free."""
_LONGEST_GAP, _MOST_STRUCTURES, _MOST_SIZES = 4096, 64, 4096


@attrs.define(eq=False)
class _Size:
    """Calls with certain integers that ran as they are: their seconds since the last trace, and traces so far."""

    seconds: float = 0.0
    traces: int = 0


@attrs.define(eq=False)
class Account:
    """What the traces of one structure cost, and what they brought.

    Attributes:
        free: traces that are left and need not be earned.
        gap: misses after which any size is tried again.
        traces: so far.
        cost: seconds of the last trace.
        misses: that ran as they are, since the last trace.
        calls: that ran as they are, in all.
        sizes: of these calls.
        last: the last two entries, the newest last.
        told_apart: the integers that the user asked to tell apart, of the traces so far.
        reason: why its misses are not traced; empty while they are.
        place: the user's line that this comes from.
        vain: times in a row that the state was compared in vain.
        looked: the number of the call for which it was last.
        next_look: the seconds of ``TraceBudget.served`` from which on it may be again.
    """

    free: int
    gap: int
    traces: int = 0
    cost: float = 0.0
    misses: int = 0
    calls: int = 0
    sizes: OrderedDict[Hashable, _Size] = attrs.field(factory=OrderedDict)
    last: tuple[weakref.ref[Entry], ...] = ()
    told_apart: set[Hashable] = attrs.field(factory=set)
    reason: str = ""
    place: str = ""
    vain: int = 0
    looked: int = 0
    next_look: float = 0.0

    def size(self, values: Hashable) -> _Size:
        """What is known of calls with these integers; the oldest are forgotten when there are too many."""
        found = self.sizes.get(values)
        if found is None:
            found = self.sizes[values] = _Size()
            if len(self.sizes) > _MOST_SIZES:
                self.sizes.popitem(last=False)
        return found


@attrs.frozen(eq=False)
class Untraced:
    """A call that runs as it is since its trace would not pay.

    Attributes:
        account: of its structure.
        values: its integers.
        by_state: whether programs would serve it in another state, which may come back.
    """

    account: Account
    values: Hashable
    by_state: bool = False


class TraceBudget:
    """What tracing may cost one compiled function.

    Args:
        fn: the function.
        free: traces of one structure that need not be earned; None: every miss is traced.
        hits: answers how many calls were served by an entry that was there.
        clock: seconds.

    Attributes:
        untraced: calls that ran as they are.
        served: their seconds.
        spent: seconds of traces that were earned.
        by_call: what runs calls as they are, by their keys.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        free: int | None,
        hits: Callable[[], int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._fn = fn
        self._free = free
        self._hits = hits
        self.clock = clock
        self._lock = forks.lock()
        self.clear()

    def clear(self) -> None:
        """Forgets everything; what does not pay is told anew."""
        free = self._free or 0
        self._accounts: OrderedDict[Hashable, Account] = OrderedDict()
        self._others = Account(0, free)
        self.by_call: dict[Hashable, Untraced] = {}
        self._left = IN_ALL * free
        self._warned = False
        self._traces = self._grown = self._leaves = self._served = 0
        self.untraced = 0
        self.served = self.spent = 0.0

    # -- whether a miss is traced
    def declines(self, structure: Hashable, values: tuple[int, ...], why: Callable[[], str]) -> Untraced | None:
        """What runs a miss as it is; None if it is to be traced.

        Args:
            structure: of the call.
            values: its integers.
            why: says why the last trace was needed, for where no line of the program fixes a size.
        """
        if self._free is None:
            return None
        with self._lock:
            account = self._accounts.get(structure)
            if self._left > 0 and (not self._grows() if account is None else account.free > 0):
                return None
            about: Hashable = values
            if account is None:
                account, about = self._others, (structure, values)
            account.misses += 1
            if self._pays(account, about):
                return None
            if not account.reason:
                account.reason, account.place = self._reason(account, why)
                if events.anybody():
                    events.emit(events.TracingPaused(name_of(self._fn), account.reason, account.place))
            return Untraced(account, about)

    def _grows(self) -> bool:
        """Whether calls of more and more leaves were traced, one after the other, and no program served one since."""
        return self._grown >= GROWN and self._hits() - 1 == self._served

    def _pays(self, account: Account, values: Hashable) -> bool:
        """Whether a call of these integers is to be traced though that is not free: it is wanted, and earned."""
        size = account.sizes.get(values)
        often = size is not None and size.seconds >= account.cost * 2**size.traces
        return (often or account.misses >= account.gap) and self._earned() >= account.cost

    def _earned(self) -> float:
        """Seconds that may be spent on traces: a share of what all calls so far took, less what was spent."""
        mean = self.served / self.untraced if self.untraced else 0.0
        hits = self._hits() - 1  # the call that is asked about is none
        return SHARE * (self.served + hits * mean) - self.spent

    def traced(
        self,
        structure: Hashable,
        values: tuple[int, ...],
        entry: Entry,
        seconds: float,
        call: int = 0,
        leaves: int = 0,
    ) -> None:
        """A miss was traced, which took so long; the number of its call, and how many leaves that has."""
        if self._free is None:
            return
        with self._lock:
            self.by_call = {}
            account = self._account(structure)
            size = account.sizes.get((structure, values) if account is self._others else values)
            if size is not None:
                size.seconds, size.traces = 0.0, size.traces + 1
            if account.free > 0 and self._left > 0:
                first = not account.traces
                if not _told_apart(account, entry, values):
                    account.free -= 1
                    self._left -= 1
                elif first:  # as many structures as sizes may come
                    self._left -= 1
            else:
                self.spent += seconds
                useful = bool(account.last) and _served_again(account.last[-1]())
                account.gap = self._free if useful else min(2 * account.gap, _LONGEST_GAP)
            account.traces, account.cost, account.misses = account.traces + 1, seconds, 0
            account.next_look, account.looked = 0.0, max(account.looked, call)
            account.last = (*account.last[-1:], weakref.ref(entry))
            served = self._hits() - 1
            self._grown = self._grown + 1 if leaves > self._leaves and served == self._served else 0
            self._traces, self._leaves, self._served = self._traces + 1, leaves, served

    def _account(self, structure: Hashable) -> Account:
        found = self._accounts.get(structure)
        if found is None:
            if self._left <= 0 or self._grows():
                return self._others
            found = self._accounts[structure] = Account(self._free or 0, self._free or 0)
            if len(self._accounts) > _MOST_STRUCTURES:
                self._accounts.popitem(last=False)
        self._accounts.move_to_end(structure)
        return found

    # -- calls that were asked about before
    def of_call(self, key: Hashable | None) -> Untraced | None:
        """What runs the very call that this key tells, if nothing has changed and it still does not pay."""
        found = self.by_call.get(key)
        return None if found is None else self._stands(found)

    def resting(self, structure: Hashable, values: tuple[int, ...]) -> Untraced | None:
        """What runs a call of this structure and these integers while its state is not to be compared."""
        account = self._accounts.get(structure)
        if account is None or self.served >= account.next_look:
            return None
        return self._stands(Untraced(account, values, by_state=True))

    def _stands(self, found: Untraced) -> Untraced | None:
        """What was found before, unless the state is to be compared again or the call is to be traced."""
        account = found.account
        if found.by_state and self.served >= account.next_look:
            return None
        with self._lock:
            account.misses += 1
            if not self._pays(account, found.values):
                return found
            account.misses -= 1  # counted when it is asked about
            account.next_look = 0.0
            return None

    def in_vain(self, found: Untraced, seconds: float, call: int, last_hit: int) -> Untraced | None:
        """The state was compared with that of programs, but is none of theirs: what may run such calls unseen.

        Args:
            found: what runs the call.
            seconds: what comparing took.
            call: the number of the call.
            last_hit: the number of the last call of its structure that a program served.
        """
        account = found.account
        if account is self._others:
            return None
        with self._lock:
            account.vain = 1 if last_hit > account.looked else account.vain + 1
            account.looked = call
            if account.vain < VAIN:
                return None
            account.next_look = self.served + seconds / LOOKS
            return attrs.evolve(found, by_state=True)

    def remember(self, key: Hashable, untraced: Untraced) -> None:
        """Lets :meth:`of_call` find it by the key of a call, until a program is traced."""
        with self._lock:
            if len(self.by_call) >= _MOST_SIZES:
                self.by_call = {}
            self.by_call[key] = untraced

    # -- the call itself
    def run(self, call: Untraced, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Runs the function itself, once, with the call's own arguments; the first such call warns."""
        account = call.account
        if events.anybody():
            events.emit(events.RanEagerly(name_of(self._fn), account.reason, account.place))
        if not self._warned:
            warn_user(f"{account.reason}\n  {_HELP}", FallbackWarning)
            self._warned = True  # not before: where warnings are errors, each of these calls is one
        start = self.clock()
        try:
            return self._fn(*args, **kwargs)
        finally:
            seconds = self.clock() - start
            with self._lock:
                account.calls += 1
                account.size(call.values).seconds += seconds
                self.untraced += 1
                self.served += seconds

    # -- in words
    def _reason(self, account: Account, why: Callable[[], str]) -> tuple[str, str]:
        """Why an account's misses are not traced, in sentences, and the user's line that it comes from."""
        name = name_of(self._fn)
        if account is self._others:
            start = (
                f"{name} was traced {self._traces} times, mostly for arguments that nest in a new way (a list that "
                f"grows, other keys), which served little more than one call each: calls with arguments that nest in "
                f"a new way run {name} as it is (eager) from now on"
            )
            return f"{start}. {why()}", defined_at(self._fn)
        start = (
            f"{name} was traced {account.traces} times for arguments like these, each time for little more than the "
            f"sizes of one call: calls with new sizes run {name} as it is (eager) from now on"
        )
        entries = [entry for each in account.last if (entry := each()) is not None]
        found = fixed_by_both(*entries) if len(entries) == 2 else None
        if found is None:
            return f"{start}. {why()}", defined_at(self._fn)
        texts, origin = found
        return f"{start}. The program needs {texts[0]}, then {texts[1]}: {origin}", origin

    def lines(self) -> list[str]:
        """For each structure whose misses are not traced: its calls and why."""
        accounts = [*self._accounts.values(), self._others]
        return [f"{each.calls:,} not traced since that would not pay: {each.reason}" for each in accounts if each.calls]


_HELP = (
    "Said once for each compiled function. Programs that exist serve their sizes, and sizes that come often are traced "
    "still.\n  What helps: that line without the size as a plain number or in a branch; dynamic={...} with the "
    "dimension makes it an error. symshape.Options(free_traces=None) traces every size."
)


def _told_apart(account: Account, entry: Entry, values: tuple[int, ...]) -> bool:
    """Whether a trace tells integers apart that its user wanted as constants, for the first time."""
    fixed = tuple(
        (place, value)
        for place, (slot, value) in enumerate(zip(entry.program.slots, values, strict=False))
        if not slot.term.symbols
    )
    if fixed in account.told_apart or len(account.told_apart) >= _MOST_SIZES:
        return False
    account.told_apart.add(fixed)
    return True


def _served_again(entry: Entry | None) -> bool:
    """Whether an entry served more than the call that it was traced for."""
    return entry is not None and sum(seen.calls for seen in list(entry.seen.values())) > 1


def fixed_by_both(first: Entry, second: Entry) -> tuple[tuple[str, str], str] | None:
    """What two programs need differently because of the same line: both conditions, and the line with its op."""
    names = spelled(first.program.sources)
    needs = {str(guard.origin): guard.text(names) for guard in first.program.guards if guard.origin}
    names = spelled(second.program.sources)
    for guard in second.program.guards:
        before = needs.get(str(guard.origin))
        if before is not None and before != guard.text(names):
            return (before, guard.text(names)), str(guard.origin)
    return None
