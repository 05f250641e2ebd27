"""Calls like earlier ones: their structure and integers, with the answers to what programs ask of arguments."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any

from symshape.calls.alike import Nest
from symshape.calls.call_key import Reading
from symshape.calls.questions import Question, answers_in, asked_without, asker
from symshape.calls.structures import Structures, without_integers
from symshape.runtime.cache import Branch, EntryCache, Hit
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
        self._structures = Structures()
        self._answers = asker(())
        self.questions: tuple[Question, ...] = ()
        self._near: dict[Hashable, tuple[object, Branch, Family[Entry]]] = {}

    def with_answers(self, structure: Hashable, leaves: Sequence[Any], key: Hashable | None = None) -> Hashable:
        """The structure of a call with the answers to what programs asked of its arguments; its key may hold them."""
        if not self.questions:
            return structure
        known = answers_in(key, self.questions)
        return structure, self._answers(leaves) if known is None else known

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

    def near(self, key: Any, branches: Sequence[Branch]) -> Hit | None:
        """What serves a call like one that was served before, with other integers, in the state of the first branch.

        None where it takes more to tell: keys that C++ did not make, constants, containers that have to be looked at.
        """
        like = self._like(key)
        found = None if like is None else self._near.get(like[0])
        if like is None or found is None or found[0] is not branches or found[1] is not branches[0]:
            return None
        entry = found[2].tree.lookup(like[1])
        return None if entry is None or entry.looks else (entry, like[1], UNCOUNTED)

    def expect(self, key: Any, branch: Branch) -> None:
        """From now on the tree of a branch is asked at once for calls like this one, which it served.

        That ends where branches change.
        """
        like, branches = self._like(key), self._cache.branches
        split = None if like is None else without_integers(asked_without(key))
        if like is None or split is None or branch not in branches:
            return
        structure: Hashable = self._structures.known.get(split[0])
        if self.questions:
            structure = structure, answers_in(key, self.questions)
        family = branch.families.get(structure)
        if family is not None:
            if len(self._near) >= _MOST_NEAR:
                self._near.clear()
            self._near[like[0]] = branches, branch, family

    def _like(self, key: Any) -> tuple[Hashable, tuple[int, ...]] | None:
        """What the key of a call shares with those of calls with other integers, and these; None for most keys."""
        answers: tuple[Any, ...] | None = ()
        if self.questions:
            answers = answers_in(key, self.questions)
            key = asked_without(key)
        if key is None or answers is None or type(key[0]) is not bytes:
            return None
        if len(key) == 2:
            return (key[0], answers), key[1]
        return ((key[0], answers, key[2]), key[1]) if len(key) == 3 and type(key[2]) is Nest else None

    def learn(self, key: Hashable, structure: Hashable, values: tuple[int, ...]) -> None:
        """Notes how a call with this exact key was read."""
        self._structures.learn(asked_without(key), structure, values)

    def clear(self) -> None:
        """Forgets how calls were read; what is asked of them stays."""
        self._structures.clear()
        self._near.clear()
