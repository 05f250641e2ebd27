"""The entries for calls of one structure, and the dispatch tree that finds one by its sizes."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, Protocol, TypeVar

from guards.dispatch.tree import Tree
from guards.sets.guard_set import GuardSet


class Guarded(Protocol):
    """What a family holds."""

    @property
    def guards(self) -> GuardSet:
        """Its guards, over the slots of the tree."""


class Cache(Protocol):
    """Whose family it is."""

    def changing(self) -> AbstractContextManager[None]:
        """Holds off other changes."""


E = TypeVar("E", bound=Guarded)


class Family(Generic[E]):
    """The entries for one structure of arguments, and one dispatch tree, which they enter when it is asked next.

    It is not asked by a process whose calls all have one tuple of sizes: the memo of exact calls answers these.

    Attributes:
        entries: all of them, in order.
    """

    def __init__(self, slots: Sequence[str], cache: Cache) -> None:
        self.entries: tuple[E, ...] = ()
        self._tree: Tree[E] = Tree(slots)
        self._waiting: tuple[E, ...] = ()
        self._cache = weakref.ref(cache)

    @property
    def tree(self) -> Tree[E]:
        """The tree, with all entries in it."""
        if self._waiting:
            cache = self._cache()
            with nullcontext() if cache is None else cache.changing():
                while self._waiting:
                    first = self._waiting[0]
                    self._tree.insert(first.guards, first)
                    self._waiting = tuple(each for each in self._waiting if each is not first)
        return self._tree

    def add(self, entry: E) -> None:
        """Adds an entry, behind all others; while the cache changes."""
        self.entries = (*self.entries, entry)
        self._waiting = (*self._waiting, entry)

    def remove(self, entry: E) -> None:
        """Takes an entry out; while the cache changes."""
        if entry in self._waiting:
            self._waiting = tuple(each for each in self._waiting if each is not entry)
        else:
            self._tree.remove(entry)
        self.entries = tuple(each for each in self.entries if each is not entry)
