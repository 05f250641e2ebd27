"""The known call structures of one compiled function, and the answers to programs' questions about
arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

from symshape.calls.call_key import Reading, without_integers
from symshape.calls.questions import Question, asked_without, asker
from symshape.runtime.cache import EntryCache, Hit
from symshape.runtime.entry import Entry, Seen
from symshape.runtime.families import Family

__all__ = ["Found", "KnownCalls"]

Found = tuple[Entry, tuple[int, ...], Sequence[Any]]
"""The entry that serves a call, the integers to run it with, and the call's leaves."""


_MOST = 1024  # structures, and families found by key, that are remembered
UNCOUNTED = Seen()
"""The counter of a near hit, until calls of its entry with these integers get a counter of their
own.
"""


class Structure(tuple[Hashable, ...]):
    """A call's structure with a hash that is computed once: that of a training step has a key of
    each parameter, and of each number of the optimizer's state.
    """

    _hash: int

    def __new__(cls, parts: Iterable[Hashable]) -> Structure:
        """Make a structure of its parts."""
        made = super().__new__(cls, parts)
        made._hash = tuple.__hash__(made)
        return made

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> Any:
        return Structure, (tuple(self),)  # hashes differ from process to process


class KnownCalls:
    """The call structures of one compiled function, by exact key: a call with new sizes is not read
    a second time.

    Attributes:
        structures: the structures of calls that were read, by their exact keys without integers.
        questions: the questions that programs asked about the data of arguments.
    """

    def __init__(self, cache: EntryCache) -> None:
        self._cache = cache
        self.structures: dict[Hashable, Structure] = {}
        self._same: dict[Hashable, Structure] = {}
        self._answers = asker(())
        self.questions: tuple[Question, ...] = ()
        self._near: dict[bytes, tuple[object, Family[Entry]]] = {}

    def same(self, structure: tuple[Hashable, ...]) -> Structure:
        """Return the one object for a structure, which dictionaries recognise without a comparison
        of its parts.
        """
        found = self._same.get(structure)
        if found is None:
            if len(self._same) >= _MOST:
                self._same.clear()
            found = self._same[structure] = Structure(structure)
        return found

    def with_answers(self, structure: Hashable, leaves: Sequence[Any]) -> Hashable:
        """Return the structure of a call, with the answers to programs' questions about its
        arguments.
        """
        return (structure, self._answers(leaves)) if self.questions else structure

    def ask(self, questions: Collection[Question]) -> None:
        """Include the answers to these questions in the structures of calls from now on."""
        new = tuple(each for each in questions if each not in self.questions)
        if new:
            self.questions += new
            self._answers = asker(self.questions)
            self._cache.ask(self.questions)

    def reading(self, flat: Sequence[Any], key: Hashable | None) -> Reading | None:
        """Return the reading of a call with this exact key and these leaves if its structure is
        known, else None.
        """
        split = (
            None if key is None else without_integers(asked_without(key) if self.questions else key)
        )
        structure = None if split is None else self.structures.get(split[0])
        return None if split is None or structure is None else (flat, structure, split[1])

    def near(self, key: Any) -> Hit | None:
        """Return the hit for a call that differs from an earlier one only in integers, by its
        dispatch tree.

        Return None if more must be checked: keys with answers or that C++ did not make, several
        branches, or containers among the arguments.
        """
        found = None if key is None else self._near.get(key[0])
        if found is None or found[0] is not self._cache.branches or len(key) != 2:
            return None
        entry = found[1].tree.lookup(key[1])
        return None if entry is None or entry.checks else (entry, key[1], UNCOUNTED)

    def expect(self, key: Any) -> None:
        """Have :meth:`near` look in the dispatch tree for calls like this one, until branches
        change.
        """
        branches = self._cache.branches
        if len(key) != 2 or type(key[0]) is not bytes or len(branches) != 1:
            return
        family = branches[0].families.get(self.structures.get(key[0]))
        if family is not None:
            if len(self._near) >= _MOST:
                self._near.clear()
            self._near[key[0]] = branches, family

    def learn(
        self, key: Hashable, structure: tuple[Hashable, ...], values: tuple[int, ...]
    ) -> None:
        """Record how a call with this exact key was read."""
        split = without_integers(asked_without(key))
        if split is not None and split[1] == values:
            if len(self.structures) >= _MOST:
                self.structures.clear()
            self.structures[split[0]] = self.same(structure)

    def clear(self) -> None:
        """Forget how calls were read; the questions stay."""
        self.structures.clear()
        self._same.clear()
        self._near.clear()
