"""The recompile cache: entries by module state, structure and guards, dispatched by memo, then by tree."""

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
from symshape.runtime.runners.notes import Note

_MOST_SEEN = 8192  # different integers that are counted for an entry
_MOST_ASKED = 4  # branches whose memos are asked


Hit = tuple[Entry, tuple[int, ...], Seen]
"""The entry that serves a call, the integers to run it with, and where such calls are counted."""


class Branch:
    """Everything compiled for one state of modules and closures.

    Attributes:
        state: what was read.
        stateless: whether nothing was that can change.
        grows: whether it may compare more, for more entries: not once one left another branch that compared too much.
        memo: exact calls, each with its entry and the integers to run it with.
        families: by structure.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.stateless = state.empty
        self.grows = True
        self.memo: dict[Hashable, Hit] = {}
        self.families: dict[Hashable, Family[Entry]] = {}

    def compare(self, state: State) -> None:
        """From now on compares what another state does, too."""
        if not self.state.covers(state):
            self.state = self.state.and_(state)
            self.stateless = False

    def compare_less(self) -> None:
        """From now on compares what the entries that are left need: the rest may keep alive what nobody else does."""
        first, *others = dict.fromkeys(entry.program.state for entry in self.entries())
        for each in others:
            if not first.covers(each):
                first = first.and_(each)
        self.state = first
        self.stateless = first.empty

    def leave(self, structure: Hashable) -> None:
        """Lets a family go that has no entries left."""
        if not self.families[structure].entries:
            del self.families[structure]

    def entries(self) -> list[Entry]:
        """The entries for this state."""
        return [entry for family in self.families.values() for entry in family.entries]


class EntryCache:
    """Entries, bounded in number, and the memo of exact calls: whatever leaves is released and never found again.

    Readers take no lock: what they read is replaced, never half-changed.

    Attributes:
        branches: the most recently used first.
        evictions: entries that left because the cache was full.
        clock: calls so far: who serves one notes it as the time of the entry's last use.
        plain, plain_until: what calls run before this one, and look for no entry (see ``plain_calls.py``).
        makers: make the keys that the memo knows calls by.
        history: what happened, for people.
        why_gone: why the last entry left, in words; empty where none has left.
    """

    plain: Callable[..., Any]  # set by who counts on it

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
        """What tells the history of things that happen to what runs an entry, which it does not keep alive."""
        history, here = self.history, weakref.ref(self)

        def note(kind: str, **what: Any) -> None:
            cache = here()
            history.note(kind, 0 if cache is None else cache.clock, entry=entry, slots=slots, **what)

        return note

    def ask(self, questions: Sequence[Question]) -> None:
        """Exact keys hold the answers to these questions too, from now on."""
        self.makers = asking(self._exact.makers, questions)

    def find_exact(self, key: Hashable) -> Hit | None:
        """What is remembered for this key, if the state is still the same."""
        for branch in self.branches[:_MOST_ASKED]:
            found = branch.memo.get(key)
            if found is not None and (branch.stateless or branch.state.unchanged()):
                return found
        return None

    def find(self, structure: Hashable, values: tuple[int, ...]) -> tuple[Branch, Entry] | None:
        """The entry that serves a call of this structure with these integers, by the tree of a branch in its state.

        Or of a branch whose state is another, where what differs is nothing that the entry itself needs.
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
        """Whether an entry would serve a call of this structure with these integers in some state."""
        families = [branch.families.get(structure) for branch in self.branches]
        return any(each is not None and each.tree.lookup(values) is not None for each in families)

    def last_hit(self, structure: Hashable) -> int:
        """The number of the last call of this structure that an entry served."""
        families = [branch.families.get(structure) for branch in self.branches]
        return max((entry.last_used for each in families if each is not None for entry in each.entries), default=0)

    def forget(self, key: Hashable) -> None:
        """Has calls by this exact key looked up anew."""
        for branch in self.branches:
            branch.memo.pop(key, None)

    def _to_front(self, branch: Branch) -> None:
        with self.changing():
            if branch in self.branches:
                self.branches = (branch, *(each for each in self.branches if each is not branch))

    def _by_itself(self, branch: Branch, structure: Hashable, entry: Entry) -> Branch:
        """Takes an entry out of a branch that compares more than it needs, into one that does not; answers that."""
        state = entry.program.state
        with self.changing():
            if entry.gone or entry not in branch.entries():  # another thread was first
                return branch
            alike = (each for each in self.branches if state.covers(each.state) and each.state.covers(state))
            found = next((each for each in alike if each.stateless or each.state.unchanged()), None) or Branch(state)
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
        self, branch: Branch, leaves: Sequence[Any], key: Hashable, entry: Entry, values: tuple[int, ...]
    ) -> None:
        """Lets :meth:`find_exact` answer ``entry`` for the key of these leaves, unless the entry has left meanwhile."""
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
        """Where calls of an entry with these integers are counted; the rarest are forgotten when there are too many."""
        found = entry.seen.get(values)
        if found is None:
            if len(entry.seen) >= _MOST_SEEN:
                self._forget_rare(entry)
            found = entry.seen.setdefault(values, Seen())
            slots = entry.program.slots
            self.history.note("new sizes", self.clock, entry=entry.number, values=values, slots=slots)
        return found

    def _forget_rare(self, entry: Entry) -> None:
        with self.changing():
            often = sorted(entry.seen.items(), key=lambda item: -item[1].calls)[: _MOST_SEEN // 2]
            entry.seen = dict(often)
            for branch in self.branches:
                branch.memo = {}

    def publish(self, structure: Hashable, entry: Entry) -> tuple[Branch, list[Entry]]:
        """Adds an entry; answers its branch and the entries that had to leave, released."""
        with self.changing():
            self._watch(entry)
            branch = self._branch_of(entry.program.state)
            self._add(branch, structure, entry)
            self.entries = (*self.entries, entry)
            self.history.note("trace", self.clock, entry=entry.number, milliseconds=entry.program.milliseconds)
            gone = self._evict(entry)
            if not branch.stateless:
                branch.state.make_ready()  # the next call would wait for it
        _release(gone)
        return branch, gone

    def _watch(self, entry: Entry) -> None:
        """Lets the entry go when an object dies that it was traced for."""
        cache, lost = weakref.ref(self), weakref.ref(entry)

        def died(_: object) -> None:
            here, found = cache(), lost()
            if here is not None and found is not None:
                here.lose(found)

        held = [found for key in entry.program.call.keys if (found := identity_of(key)) is not None]
        entry.watched = [each.when_gone(died) for each in held]

    def lose(self, entry: Entry) -> None:
        """Lets an entry go that no call can reach, now or (in the midst of a change) after the next one."""
        self._lost.append(entry)
        if not self._busy and self.lock.acquire(blocking=False):
            try:
                with self.changing():
                    pass
            finally:
                self.lock.release()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Holds the lock; objects may die inside, at any allocation, and their entries leave afterwards."""
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
        """The branch for a state that is the present one: one that holds now, which then compares this one's too."""
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
            oldest = min((each for each in self.entries if each is not newest), key=lambda each: each.last_used)
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
            held = [(structure, each) for structure, each in branch.families.items() if entry in each.entries]
            for structure, family in held:
                family.remove(entry)
                branch.leave(structure)
            if held and entry.watched and branch.families:
                branch.compare_less()
            branch.memo = {key: found for key, found in branch.memo.items() if found[0] is not entry}
        self.branches = tuple(branch for branch in self.branches if branch.families)

    def discard(self, entry: Entry, why: str = "it can serve no more calls") -> None:
        """Removes an entry that can serve no more calls, and notes why; nothing if it has left already."""
        with self.changing():
            if entry.gone:
                return
            self._remove(entry, why)
        _release((entry,))

    def clear(self) -> None:
        """Forgets everything, and counts from 0 again."""
        with self.changing():
            gone, self.entries, self.branches = self.entries, (), ()
            self.evictions = self.clock = self.plain_until = 0
            self.why_gone = ""
            self.history.clear()
            for entry in gone:
                entry.gone = True
        _release(gone)


def _release(gone: Iterable[Entry]) -> None:
    """Without the cache's lock: a runner that is being asked to let go may have to finish something first."""
    for entry in gone:
        entry.runner.release()
