"""The entries for calls of one structure, and the dispatch tree that finds an entry by the call's
sizes.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, Protocol, TypeVar

from guards.dispatch.tree import Tree
from guards.sets.guard_set import GuardSet


class Guarded(Protocol):
    """The protocol of a family's members."""

    @property
    def guards(self) -> GuardSet:
        """The member's guards, over the slots of the tree."""


class Cache(Protocol):
    """The protocol of the cache that owns a family."""

    def changing(self) -> AbstractContextManager[None]:
        """Return a context that excludes other changes of the cache."""


E = TypeVar("E", bound=Guarded)


class Family(Generic[E]):
    """The entries for one structure of arguments, and their dispatch tree; entries join the tree at
    its next use.

    A process whose calls all have the same sizes never uses the tree: the memo of exact calls
    serves them.

    Attributes:
        entries: all entries, in order.
    """

    def __init__(self, slots: Sequence[str], cache: Cache) -> None:
        self.entries: tuple[E, ...] = ()
        self._tree: Tree[E] = Tree(slots)
        self._waiting: tuple[E, ...] = ()
        self._cache = weakref.ref(cache)

    @property
    def tree(self) -> Tree[E]:
        """The dispatch tree, after all waiting entries were inserted."""
        if self._waiting:
            cache = self._cache()
            with nullcontext() if cache is None else cache.changing():
                while self._waiting:
                    first = self._waiting[0]
                    self._tree.insert(first.guards, first)
                    self._waiting = tuple(each for each in self._waiting if each is not first)
        return self._tree

    def add(self, entry: E) -> None:
        """Add an entry after all others; call while the cache changes."""
        self.entries = (*self.entries, entry)
        self._waiting = (*self._waiting, entry)

    def remove(self, entry: E) -> None:
        """Remove an entry; call while the cache changes."""
        if entry in self._waiting:
            self._waiting = tuple(each for each in self._waiting if each is not entry)
        else:
            self._tree.remove(entry)
        self.entries = tuple(each for each in self.entries if each is not entry)
