"""Calls like earlier ones: their structure and integers, with the answers to what programs ask of arguments."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any

from symshape.calls.call_key import Reading
from symshape.calls.questions import Question, asked_without, asker
from symshape.calls.structure_cache import StructureCache, without_integers
from symshape.runtime.cache import EntryCache, Hit
from symshape.runtime.entry import Entry, Seen
from symshape.runtime.families import Family

__all__ = ["Found", "KnownCalls"]

Found = tuple[Entry, tuple[int, ...], Sequence[Any]]
"""The entry that serves a call, the integers to run it with, and the call's leaves."""


_MOST_NEAR = 1024
UNCOUNTED = Seen()
"""Stands where calls of an entry with certain integers are counted, until they are."""


class KnownCalls:
    """How calls of one compiled function are told apart, and which need not be read since their like was.

    Attributes:
        questions: what programs asked of the data of arguments.
    """

    def __init__(self, cache: EntryCache) -> None:
        self._cache = cache
        self._structures = StructureCache()
        self._answers = asker(())
        self.questions: tuple[Question, ...] = ()
        self._near: dict[bytes, tuple[object, Family[Entry]]] = {}

    def with_answers(self, structure: Hashable, leaves: Sequence[Any]) -> Hashable:
        """The structure of a call with the answers to what programs asked of its arguments."""
        return (structure, self._answers(leaves)) if self.questions else structure

    def ask(self, questions: Collection[Question]) -> None:
        """From now on, calls are told apart by the answers to these questions too."""
        new = tuple(each for each in questions if each not in self.questions)
        if new:
            self.questions += new
            self._answers = asker(self.questions)
            self._cache.ask(self.questions)

    def reading(self, flat: Sequence[Any], key: Hashable | None) -> Reading | None:
        """What reading a call with this exact key and these leaves answers, if its like was read before."""
        split = None if key is None else without_integers(asked_without(key) if self.questions else key)
        structure = None if split is None else self._structures.known.get(split[0])
        return None if split is None or structure is None else (flat, structure, split[1])

    def near(self, key: Any) -> Hit | None:
        """What serves a call like one that was served before, with other integers, in the state of that one.

        None where it takes more to tell: keys with answers or that C++ did not make, several branches, containers that
        have to be looked at.
        """
        found = None if key is None else self._near.get(key[0])
        if found is None or found[0] is not self._cache.branches or len(key) != 2:
            return None
        entry = found[1].tree.lookup(key[1])
        return None if entry is None or entry.looks else (entry, key[1], UNCOUNTED)

    def expect(self, key: Any) -> None:
        """From now on the tree is asked at once for calls like this one, which it has served, until branches change."""
        branches = self._cache.branches
        if len(key) != 2 or type(key[0]) is not bytes or len(branches) != 1:
            return
        family = branches[0].families.get(self._structures.known.get(key[0]))
        if family is not None:
            if len(self._near) >= _MOST_NEAR:
                self._near.clear()
            self._near[key[0]] = branches, family

    def learn(self, key: Hashable, structure: Hashable, values: tuple[int, ...]) -> None:
        """Notes how a call with this exact key was read."""
        self._structures.learn(asked_without(key), structure, values)

    def clear(self) -> None:
        """Forgets how calls were read; what is asked of them stays."""
        self._structures.clear()
        self._near.clear()
