"""The programs of one compiled function as offers, and the decision whether a trace is worth making
now.

The first traces are always made: nothing is known before.  Each later one has to find room in the
promise.  A few traces of each structure of arguments need no more than that.  From then on, calls
that run eagerly credit two nested offers: a program for their own integers, and a program for any
integers.  A trace is made when either has its price. A trace that served no other call, or that was
refused, makes the wide offer dearer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import attrs

from symshape.runtime.policy.ledger import DEARER, EARLY, Offer
from symshape.runtime.policy.promise import SHARE, Promise

__all__ = ["FRUITLESS", "GROWN", "LOOKS", "Account", "Programs"]

FIRST = 2
"""The number of a function's first traces that are always made: for the first sizes, and for sizes
that vary.
"""
TRIES = 3
"""The number of refused traces of one structure after which the next one needs credit."""
STRUCTURES = 8
"""The number of structures whose traces without credit a function may use up."""
LEARNING, LEARNING_MS = 4, 40.0
"""The most first calls on a device that run eagerly before a trace, and the ms that those after the
first may take.

Two calls may have the same size by chance; a trace of 500 ms that takes the size for a constant
must be repeated.
"""
HOPED = 0.5
"""The share of an eager call's time that a program is assumed to save, until programs have served
for a while.
"""
GROWN = 10
"""The number of successive traces, each for a call of more leaves and none used again, before the
next needs credit.
"""
LOOKS = 0.05
"""The share of eager calls' time that comparing the programs' state may take, once that was often
fruitless.
"""
FRUITLESS = 4
"""The number of successive fruitless comparisons of the state after which calls run eagerly without
one.
"""
_MOST_STRUCTURES, _MOST_SIZES = 64, 4096


def _never() -> bool:
    return False


@attrs.define(eq=False)
class Account:
    """The traces of calls of one structure, and its calls that ran eagerly.

    Attributes:
        free: the number of traces left that need no credit.
        wide: the offer of a program for any integers.
        sizes: the offers of programs for certain integers.
        cost: the ms of the last trace.
        traces: the number of traces so far.
        refused: the number of refused traces so far.
        calls: the number of calls that ran eagerly because their trace would not pay.
        asked: whether the user asked for traces: integers declared constant have changing values.
        served_again: returns whether the last program served other calls than the one that it was
            traced for.
        fruitless: the number of successive comparisons that found the state of programs changed.
        looked: the number of the last call for which the state was compared.
        next_look: the ms of ``Programs.eager`` before which the state is not compared again.
        refusal: why the last trace was refused; None if none was.
        programs: weak references to the last two programs.
        special: whether its calls have a size of 0 or 1 that other calls do not: a program would
            serve only those, so every trace needs credit.
        reason: why calls are not traced; empty while they are.
        place: the user's line responsible.
    """

    free: int = 0
    wide: Offer = attrs.field(factory=lambda: Offer("any sizes", 0.0))
    sizes: OrderedDict[Hashable, Offer] = attrs.field(factory=OrderedDict)
    cost: float = 0.0
    traces: int = 0
    refused: int = 0
    calls: int = 0
    asked: bool = False
    served_again: Callable[[], bool] = _never
    fruitless: int = 0
    looked: int = 0
    next_look: float = 0.0
    refusal: Any = None
    programs: tuple[Any, ...] = ()
    special: bool = False
    reason: str = ""
    place: str = ""
    _told_apart: set[Hashable] = attrs.field(factory=set)
    _constants: dict[int, int] = attrs.field(factory=dict)

    def tells_apart(self, constants: tuple[tuple[int, int], ...]) -> bool:
        """Record a trace's constant integers, each with its place; return whether no trace had the
        same before.
        """
        self.asked |= any(
            self._constants.setdefault(place, value) != value for place, value in constants
        )
        if constants in self._told_apart or len(self._told_apart) >= _MOST_SIZES:
            return False
        self._told_apart.add(constants)
        return True

    def credit(self, about: Hashable, gain: float) -> None:
        """Record the ms that a program would have saved in a call."""
        self.wide.add(gain, 0)
        found = self.sizes.get(about)
        if found is None:
            found = self.sizes[about] = Offer("these sizes", 0.0)
            if len(self.sizes) > _MOST_SIZES:
                self.sizes.popitem(last=False)
        found.add(gain, 0)

    def has_credit(self, about: Hashable, cost: float) -> bool:
        """Return whether an offer for a call with these integers has earned its price, if a trace
        takes ``cost`` ms.
        """
        if self.wide.failures and self.served_again():
            self.wide.failures = 0
        own = self.sizes.get(about)
        return any(
            each.credit >= EARLY * cost * DEARER**each.failures
            for each in (self.wide, *(() if own is None else (own,)))
        )

    def spent(self, about: Hashable, milliseconds: float) -> None:
        """Record a trace that was paid for: credit starts at 0, and the next trace costs more
        credit.
        """
        self.cost = milliseconds
        for each in (self.wide, self.sizes.get(about)):
            if each is not None:
                each.credit, each.failures = 0.0, each.failures + 1


class Programs:
    """The accounts of one compiled function's traces.  Units: ms.

    Args:
        promise: the totals of the compiled function.
        free: the number of traces of one structure that need no credit; None if every miss is
            traced.
        hits: returns how many calls existing programs have served, including the present one.
        accounted: whether runners of programs keep their own account of these calls.

    Attributes:
        eager: the ms of the calls that ran eagerly.
        calls: their number.
        others: the account that all structures without an account of their own share.
        warm: the ms of the first eager call, which loads kernels and makes the state of optimizers.
    """

    def __init__(
        self,
        promise: Promise,
        free: int | None = None,
        hits: Callable[[], int] = int,
        *,
        accounted: bool = True,
    ) -> None:
        self.promise, self._free, self._hits, self._accounted = promise, free, hits, accounted
        self.clear()

    def clear(self) -> None:
        """Forget all calls and traces."""
        self._accounts: OrderedDict[Hashable, Account] = OrderedDict()
        self.others = Account()
        self._left = STRUCTURES * (self._free or 0)  # traces of all structures that need no credit
        self.eager, self.warm, self.calls, self.traces = 0.0, 0.0, 0, 0
        self._grown = self._leaves = self._served = 0

    @property
    def accounts(self) -> list[Account]:
        """Return the accounts of structures, and last the one that all other structures share."""
        return [*self._accounts.values(), self.others]

    @property
    def room(self) -> float:
        """Return the ms that traces may take now within the promise."""
        if self._accounted or not self.calls:
            return self.promise.room
        return self.promise.room + SHARE * self.eager / self.calls * max(0, self._hits())

    def account(
        self, structure: Hashable, values: Hashable, special: tuple[int, ...] = ()
    ) -> tuple[Account, Hashable]:
        """Return the account for calls of a structure, and the key of their integers in that
        account.

        ``special`` holds the places of sizes that change and are 0 or 1 in the call.
        """
        if special:
            structure = structure, special
        found = self._accounts.get(structure)
        if found is None:
            if not special and self._free is not None and (self._left <= 0 or self._grows()):
                return self.others, (structure, values)
            found = self._accounts[structure] = (
                Account(special=True) if special else Account(self._free or 0)
            )
            if len(self._accounts) > _MOST_STRUCTURES:
                self._accounts.popitem(last=False)
        self._accounts.move_to_end(structure)
        return found, values

    def of(self, structure: Hashable) -> Account | None:
        """Return a structure's own account, or None."""
        return self._accounts.get(structure)

    def _grows(self) -> bool:
        """Return whether successive traces had more and more leaves each, and none served another
        call.
        """
        return self._grown >= GROWN and self._hits() - 1 == self._served

    # -- decisions
    def worth(self, account: Account, about: Hashable) -> bool:
        """Return whether a trace for a call with these integers is worth making now."""
        if not account.refused:
            if self._free is None:
                return True
            if account.special:
                paid = (
                    account.has_credit(about, self._cost(account))
                    if self.traces
                    else account.calls > 0
                )
                return paid and self.has_room(account)
            if self.traces < FIRST:
                return True
            return self.has_room(account) and (
                account.free > 0 or account.has_credit(about, self._cost(account))
            )
        free = account.refused < TRIES and (self._free is None or account.free > 0)
        return (self._free is None or self.has_room(account)) and (
            free or account.has_credit(about, self._cost(account))
        )

    def learns(self) -> bool:
        """Return whether the next call runs eagerly to learn which sizes change, where first calls
        do so.
        """
        return not self.traces and (
            self.calls < 1 or (self.calls < LEARNING and self.eager - self.warm < LEARNING_MS)
        )

    def why(self, account: Account, about: Hashable) -> str:
        """Return why a trace for a call with these integers is worth making now."""
        if self._free is None:
            return "each call that no program serves is traced"
        if self.traces < FIRST:
            return "a function's first traces are made whatever they take"
        if account.free > 0 and account.refused < TRIES:
            return f"{account.free} traces for arguments like these need no credit"
        own = account.sizes.get(about)
        credit = max(account.wide.credit, 0.0 if own is None else own.credit)
        return (
            f"calls that ran eagerly would have saved {credit:.3g} ms; the last trace took "
            f"{account.cost:.3g}"
        )

    def has_room(self, account: Account) -> bool:
        """Return whether the promise has room for another trace like the last one."""
        return account.asked or self._cost(account) <= self.room

    @property
    def _hoped(self) -> float:
        """Return the share of an eager call's time that another program is expected to save.

        Where runners keep accounts, it is what programs have saved, once they have served calls for
        as long as a trace takes.
        """
        served = self.promise.eager - self.eager
        if not self._accounted or not self.traces or served <= self.others.cost:
            return HOPED
        return min(max(self.promise.saved / served, 0.0), 1.0)

    def _cost(self, account: Account) -> float:
        """Return the expected ms of a trace: those of the account's last trace, or of any last
        trace.
        """
        return account.cost or self.others.cost

    def rests(self, account: Account) -> bool:
        """Return whether the state of programs is not yet to be compared again for calls of this
        structure.
        """
        return self.eager < account.next_look

    # -- records
    def ran(self, account: Account, about: Hashable, milliseconds: float) -> None:
        """Record a call that ran eagerly."""
        self.calls += 1
        self.eager += milliseconds
        if self.calls == 1:
            self.warm = milliseconds
        self.promise.call(milliseconds, milliseconds)
        account.credit(about, self._hoped * milliseconds)

    def traced(
        self,
        account: Account,
        about: Hashable,
        milliseconds: float,
        *,
        constants: tuple[tuple[int, int], ...] = (),
        served_again: Callable[[], bool] = _never,
        call: int = 0,
        leaves: int = 0,
    ) -> None:
        """Record a trace.

        Args:
            account: the account of the call's structure.
            about: the call's integers.
            milliseconds: the ms that the trace took.
            constants: the integers that are constants of the program, each with its place.
            served_again: returns whether the program has served other calls.
            call: the number of the call.
            leaves: the number of the call's leaves.
        """
        self.promise.spend(milliseconds)
        if self._free is None:
            return
        new = account.tells_apart(constants)
        if account.free > 0 and not account.refused:
            account.free -= not new
            self._left -= not new or not account.traces
            account.cost = milliseconds
            account.sizes.pop(about, None)
        else:
            account.spent(about, milliseconds)
        self.others.cost = milliseconds
        account.served_again, account.traces, self.traces = (
            served_again,
            account.traces + 1,
            self.traces + 1,
        )
        account.next_look, account.looked = 0.0, max(account.looked, call)
        served = self._hits() - 1  # without the present call
        self._grown = self._grown + 1 if leaves > self._leaves and served == self._served else 0
        self._leaves, self._served = leaves, served

    def refused(self, account: Account, about: Hashable, milliseconds: float) -> None:
        """Record a refused trace."""
        self.promise.spend(milliseconds)
        account.refused += 1
        self.traces += 1
        self._left -= 1
        account.spent(about, milliseconds)
        self.others.cost = milliseconds

    def compared(self, account: Account, milliseconds: float) -> None:
        """Record the ms of comparing the state; the next comparison waits until eager calls have
        taken long enough.
        """
        account.next_look = self.eager + milliseconds / LOOKS

    def fruitless(self, account: Account, milliseconds: float, call: int, last_hit: int) -> bool:
        """Record that no program's state was the present one; return whether calls now run without
        comparing it.

        Args:
            account: the account of the structure.
            milliseconds: the ms of the comparison.
            call: the number of the call.
            last_hit: the number of the last call of the structure that a program served.
        """
        if account is self.others:
            return False
        account.fruitless = 1 if last_hit > account.looked else account.fruitless + 1
        account.looked = call
        if account.fruitless < FRUITLESS:
            return False
        self.compared(account, milliseconds)
        return True
