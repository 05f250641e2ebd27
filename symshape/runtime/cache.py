"""The recompile cache: entries by module state, structure and guards, found by exact key, then by
dispatch tree.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from symshape import forks
from symshape.calls.arguments import identity_of
from symshape.calls.call_key import QUICK, ExactKey
from symshape.calls.questions import Question, asking
from symshape.graph.program import Slot, State, slot_names
from symshape.runtime.entry import Entry, Seen
from symshape.runtime.families import Family
from symshape.runtime.history import History
from symshape.runtime.runners.protocol import Note

_MOST_SEEN = 8192  # counters of an entry: different tuples of integers
_MOST_ASKED = 4  # branches whose memos are searched for an exact key


Hit = tuple[Entry, tuple[int, ...], Seen]
"""The entry that serves a call, the integers to run it with, and where such calls are counted."""


class Branch:
    """The entries compiled for one state of modules and closures.

    Attributes:
        state: the values of modules, globals and closures that traces read.
        stateless: whether the traces read nothing that can change.
        grows: whether it may compare more state for new entries: false once an entry moved here to
            compare less.
        memo: hits by the exact key of a call.
        families: entries and dispatch tree by call structure.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.stateless = state.empty
        self.grows = True
        self.memo: dict[Hashable, Hit] = {}
        self.families: dict[Hashable, Family[Entry]] = {}

    def compare(self, state: State) -> None:
        """Add another state to what this branch compares at each call."""
        if not self.state.covers(state):
            self.state = self.state.and_(state)
            self.stateless = False

    def compare_less(self) -> None:
        """Compare only what the remaining entries need: anything more may keep objects alive that
        no entry uses.
        """
        first, *others = dict.fromkeys(entry.program.state for entry in self.entries())
        for each in others:
            if not first.covers(each):
                first = first.and_(each)
        self.state = first
        self.stateless = first.empty

    def leave(self, structure: Hashable) -> None:
        """Drop the family of a structure if it has no entries left."""
        if not self.families[structure].entries:
            del self.families[structure]

    def entries(self) -> list[Entry]:
        """Return the entries for this state."""
        return [entry for family in self.families.values() for entry in family.entries]


class EntryCache:
    """The entries of one compiled function, bounded in number, and the memo of exact calls.

    A removed entry is released and not found again.  Readers take no lock: attributes are replaced
    as a whole.

    Attributes:
        branches: the most recently used first.
        evictions: entries that were removed because the cache was full.
        clock: calls so far; recorded in an entry as the time of its last use.
        plain, plain_until: calls before number ``plain_until`` run ``plain`` without a look-up
            (``eager_or_program.py``).
        makers: the functions that make exact keys for the memo.
        history: the events of this function, for reports.
        why_gone: why the last entry was removed, in words; empty if none was.
    """

    plain: Callable[..., Any]  # set by EagerOrProgram

    def __init__(self, max_entries: int, memo_size: int, exact: ExactKey = QUICK) -> None:
        self._max_entries = max_entries
        self._memo_size = memo_size
        self.makers = exact.makers
        self._exact = exact
        self.clock = self.plain_until = 0
        self.branches: tuple[Branch, ...] = ()
        self.entries: tuple[Entry, ...] = ()
        self.evictions = 0
        self.why_gone = ""
        self.history = History()
        self.lock = forks.lock()
        self._busy = False
        self._lost: deque[Entry] = deque()

    def notes(self, entry: int, slots: Sequence[Slot]) -> Note:
        """Return a function that records events of an entry's runner; it does not keep this cache
        alive.
        """
        history, here = self.history, weakref.ref(self)

        def note(kind: str, **what: Any) -> None:
            cache = here()
            history.note(
                kind, 0 if cache is None else cache.clock, entry=entry, slots=slots, **what
            )

        return note

    def ask(self, questions: Sequence[Question]) -> None:
        """Include the answers to these questions in exact keys from now on."""
        self.makers = asking(self._exact.makers, questions)

    def find_exact(self, key: Hashable) -> Hit | None:
        """Return the remembered hit for an exact key if its branch's state is unchanged, else
        None.
        """
        for branch in self.branches[:_MOST_ASKED]:
            found = branch.memo.get(key)
            if found is not None and (branch.stateless or branch.state.unchanged()):
                return found
        return None

    def find(self, structure: Hashable, values: tuple[int, ...]) -> tuple[Branch, Entry] | None:
        """Return the branch and entry that serve a call of this structure with these integers, or
        None.

        A branch whose state is unchanged is preferred. An entry of another branch serves too if the
        part of the state that the entry itself needs is unchanged.
        """
        others: list[tuple[Branch, Entry]] = []
        branches = self.branches  # another thread may exchange them
        for branch in branches:
            family = branch.families.get(structure)
            if family is None:
                continue
            entry = family.tree.lookup(values)
            if entry is None:
                continue
            if branch.stateless or branch.state.unchanged():
                if branch is not branches[0]:
                    self._to_front(branch)
                return branch, entry
            if entry.program.state is not branch.state:
                others.append((branch, entry))
        for branch, entry in others:
            if entry.program.state.unchanged():
                return self._by_itself(branch, structure, entry), entry
        return None

    def admits(self, structure: Hashable, values: tuple[int, ...]) -> bool:
        """Return whether an entry would serve a call of this structure with these integers in some
        state.
        """
        families = [branch.families.get(structure) for branch in self.branches]
        return any(each is not None and each.tree.lookup(values) is not None for each in families)

    def last_hit(self, structure: Hashable) -> int:
        """Return the number of the last call of this structure that an entry served, or 0."""
        families = [branch.families.get(structure) for branch in self.branches]
        return max(
            (entry.last_used for each in families if each is not None for entry in each.entries),
            default=0,
        )

    def forget(self, key: Hashable) -> None:
        """Remove an exact key from every memo, so that such calls are looked up again."""
        for branch in self.branches:
            branch.memo.pop(key, None)

    def _to_front(self, branch: Branch) -> None:
        with self.changing():
            if branch in self.branches:
                self.branches = (branch, *(each for each in self.branches if each is not branch))

    def _by_itself(self, branch: Branch, structure: Hashable, entry: Entry) -> Branch:
        """Move an entry from a branch that compares more state than the entry needs; return its new
        branch.
        """
        state = entry.program.state
        with self.changing():
            if entry.gone or entry not in branch.entries():  # another thread was first
                return branch
            alike = (
                each
                for each in self.branches
                if state.covers(each.state) and each.state.covers(state)
            )
            found = next(
                (each for each in alike if each.stateless or each.state.unchanged()), None
            ) or Branch(state)
            found.grows = False
            branch.families[structure].remove(entry)
            self._add(found, structure, entry)
            branch.leave(structure)
            branch.memo = {key: hit for key, hit in branch.memo.items() if hit[0] is not entry}
            if entry.watched and branch.families:
                branch.compare_less()
            kept = [each for each in self.branches if each.families and each is not found]
            self.branches = (found, *kept)
        return found

    def _add(self, branch: Branch, structure: Hashable, entry: Entry) -> None:
        family = branch.families.get(structure)
        if family is None:
            family = Family(slot_names(len(entry.program.slots)), self)
        family.add(entry)
        branch.families[structure] = family

    def remember(
        self,
        branch: Branch,
        leaves: Sequence[Any],
        key: Hashable,
        entry: Entry,
        values: tuple[int, ...],
    ) -> None:
        """Store ``entry`` in the branch's memo under the exact key of these leaves, unless it was
        removed meanwhile.
        """
        if not self._exact.lasts(leaves):
            return
        with self.lock:
            outer, self._busy = self._busy, True  # as in a change, without a generator's frame
            try:
                if not entry.gone:
                    if len(branch.memo) >= self._memo_size:
                        branch.memo = {}
                    branch.memo[key] = (entry, values, self.seen(entry, values))
            finally:
                self._busy = outer
        if self._lost:
            with self.changing():
                pass

    def seen(self, entry: Entry, values: tuple[int, ...]) -> Seen:
        """Return the counter of an entry's calls with these integers; the rarer half of too many is
        dropped.
        """
        found = entry.seen.get(values)
        if found is None:
            if len(entry.seen) >= _MOST_SEEN:
                self._forget_rare(entry)
            found = entry.seen.setdefault(values, Seen())
            slots = entry.program.slots
            self.history.note(
                "new sizes", self.clock, entry=entry.number, values=values, slots=slots
            )
        return found

    def _forget_rare(self, entry: Entry) -> None:
        with self.changing():
            often = sorted(entry.seen.items(), key=lambda item: -item[1].calls)[: _MOST_SEEN // 2]
            entry.seen = dict(often)
            for branch in self.branches:
                branch.memo = {}

    def publish(self, structure: Hashable, entry: Entry) -> tuple[Branch, list[Entry]]:
        """Add an entry; return its branch and the entries that were evicted and released for it."""
        with self.changing():
            self._watch(entry)
            branch = self._branch_of(entry.program.state)
            self._add(branch, structure, entry)
            self.entries = (*self.entries, entry)
            self.history.note(
                "trace", self.clock, entry=entry.number, milliseconds=entry.program.milliseconds
            )
            gone = self._evict(entry)
            if not branch.stateless:
                branch.state.make_ready()  # the next call would wait for it
        _release(gone)
        return branch, gone

    def _watch(self, entry: Entry) -> None:
        """Have the entry removed when one of the objects dies that it was traced for."""
        cache, lost = weakref.ref(self), weakref.ref(entry)

        def died(_: object) -> None:
            here, found = cache(), lost()
            if here is not None and found is not None:
                here.lose(found)

        held = [found for key in entry.program.call.keys if (found := identity_of(key)) is not None]
        entry.watched = [each.when_gone(died) for each in held]

    def lose(self, entry: Entry) -> None:
        """Remove an entry that no call can reach any more: now, or after the change in progress."""
        self._lost.append(entry)
        if not self._busy and self.lock.acquire(blocking=False):
            try:
                with self.changing():
                    pass
            finally:
                self.lock.release()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock for a change; entries whose objects die inside, at any allocation, are
        removed afterwards.
        """
        gone: list[Entry] = []
        with self.lock:
            outer, self._busy = self._busy, True
            try:
                yield
                while self._lost and not outer:
                    entry = self._lost.popleft()
                    if not entry.gone:
                        self._remove(entry, "an object that it was traced for no longer exists")
                        gone.append(entry)
            finally:
                self._busy = outer
        _release(gone)

    def _branch_of(self, state: State) -> Branch:
        """Return a branch whose state holds now, which then compares ``state`` too; a new branch if
        there is none.
        """
        for branch in self.branches:
            if (branch.grows or branch.state.covers(state)) and branch.state.unchanged():
                branch.compare(state)
                break
        else:
            branch = Branch(state)
        self.branches = (branch, *(each for each in self.branches if each is not branch))
        return branch

    def _evict(self, newest: Entry) -> list[Entry]:
        gone: list[Entry] = []
        while len(self.entries) > self._max_entries:
            oldest = min(
                (each for each in self.entries if each is not newest),
                key=lambda each: each.last_used,
            )
            self._remove(oldest, "the cache was full")
            gone.append(oldest)
            self.evictions += 1
            self.history.note("evicted", self.clock, entry=oldest.number, text="the cache was full")
        return gone

    def _remove(self, entry: Entry, why: str) -> None:
        entry.gone = True
        self.why_gone = why
        self.entries = tuple(each for each in self.entries if each is not entry)
        for branch in self.branches:
            held = [
                (structure, each)
                for structure, each in branch.families.items()
                if entry in each.entries
            ]
            for structure, family in held:
                family.remove(entry)
                branch.leave(structure)
            if held and entry.watched and branch.families:
                branch.compare_less()
            branch.memo = {
                key: found for key, found in branch.memo.items() if found[0] is not entry
            }
        self.branches = tuple(branch for branch in self.branches if branch.families)

    def discard(self, entry: Entry, why: str = "it can serve no more calls") -> None:
        """Remove an entry that can serve no more calls, and record why; do nothing if it was
        removed already.
        """
        with self.changing():
            if entry.gone:
                return
            self._remove(entry, why)
        _release((entry,))

    def clear(self) -> None:
        """Remove all entries and the history, and count from 0 again."""
        with self.changing():
            gone, self.entries, self.branches = self.entries, (), ()
            self.evictions = self.clock = self.plain_until = 0
            self.why_gone = ""
            self.history.clear()
            for entry in gone:
                entry.gone = True
        _release(gone)


def _release(gone: Iterable[Entry]) -> None:
    """Release the runners of removed entries, outside the cache's lock: a runner may have work to
    finish first.
    """
    for entry in gone:
        entry.runner.release()
