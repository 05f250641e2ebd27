"""What a recording notes, and what adds to it most: a name that was loaded, an entry that was read or was not there.

A trace does this thousands of times, so there are two of it: :class:`PythonReads`, and the same in C++
(``compiled_reads.cpp``), which serves where it was built.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from operator import is_
from typing import TYPE_CHECKING, Any

import torch

from symshape.tracing.state import compiled
from symshape.tracing.state.places import MISSING, Cell, Container, Place
from symshape.tracing.symbolic.tensors import SymbolicTensor

SYMBOLIC = (SymbolicTensor, torch.SymInt, torch.SymFloat, torch.SymBool)
is_symbolic: Callable[[type], bool] = functools.lru_cache(maxsize=4096)(lambda kind: issubclass(kind, SYMBOLIC))
FOLLOWED = (torch.Tensor, torch.nn.Module, list, dict)
"""Classes of objects of which it is noted how the program came by them: see ``replacement``."""


def entries_of(owner: Any) -> dict[Any, Any]:
    """What a dictionary, or the view of a class, holds: past a ``__getitem__`` of its own."""
    return dict(dict.items(owner) if isinstance(owner, dict) else owner)


class Namespace:
    """A dictionary of attributes or globals as it was before the trace.

    Attributes:
        name: for people.
        owner: the dictionary; of a class, a view of it.
        before: what it held.
        own: whether plain values count: what objects of Python's and torch's own note is their own affair.
        kind: the class, if it is of one.
        open: whether trusted code may write there, which nobody notes.
        given: whether it is of an object among the arguments.
    """

    __slots__ = ("_untouched", "before", "given", "kind", "name", "open", "own", "owner")

    def __init__(self, name: str, owner: Any, own: bool, kind: type | None = None) -> None:
        self.name, self.owner, self.own, self.kind = name, owner, own, kind
        self._untouched: Callable[[None], bool] | None = None
        if type(owner) is dict:
            if compiled.VERSIONS is not None:  # first: what another thread writes meanwhile is seen
                self._untouched = compiled.VERSIONS((owner,)).unchanged
            self.before = owner.copy()
        else:
            self.before = entries_of(owner)
        self.open = self.given = False

    def unchanged(self) -> bool:
        """Whether the very same names, in their order, stand for the very same values."""
        if self._untouched is not None and self._untouched(None):  # it was not written at all
            return True
        owner, before = self.owner, self.before
        if len(owner) != len(before):
            return False
        return not before or (all(map(is_, owner.values(), before.values())) and all(map(is_, owner, before)))


class PythonReads:
    """The notes of a recording: see ``Recorder`` for what they are."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.containers: list[Container] = []
        self.names: dict[int, str] = {}
        self.namespaces: dict[int, Namespace] = {}
        self.known: dict[int, Any] = {}
        self.pinned: set[int] = set()
        self.told: dict[tuple[int, str], Any] = {}
        self.members: dict[tuple[int, str], Any] = {}
        self.seen: dict[tuple[int, Any], Any] = {}
        self.fresh = False
        self.alone = True
        self.asker = ""
        self.busy = False
        self.weakly = False
        self.thread = threading.get_ident()
        self._handler_for: Callable[[type], Any] = lambda kind: None
        self._read: dict[tuple[int, Any], Any] = {}

    def touch_made(self, value: Any, name: str) -> None:
        """A value was loaded that the program itself stored there."""
        raise NotImplementedError

    def _still(self, owner: Any, key: Any, name: str) -> None:
        """Refuses what another thread changes meanwhile."""
        raise NotImplementedError

    def namespace(self, name: str, owner: Any, own: bool = True) -> Namespace:
        """How a dictionary was when it was first met."""
        found = self.namespaces.get(id(owner))
        if found is None:
            found = self.namespaces[id(owner)] = Namespace(name, owner, own)
        return found

    def touch(self, value: Any, name: str, placed: bool = False) -> None:
        """A value that was there before the trace, or may have been, was loaded: what it leads to is looked at.

        Args:
            value: what was loaded.
            name: for people.
            placed: whether a place or a container says where it was found, so that another there would be seen.
        """
        if not placed and isinstance(value, FOLLOWED):
            self.pinned.add(id(value))
        key = id(value)
        if key in self.known:
            return
        handler = self._handler_for(type(value))
        if handler is not None:
            self.known[key] = value
            handler(self, value, name)

    def entry(self, owner: Any, key: Any, name: str, namespace: Namespace) -> None:
        """An entry of a dictionary was read; it is no place if the trace itself wrote there before it read."""
        where = (id(owner), key)
        if where in self.seen:
            if not self.alone:
                self._still(owner, key, name)
            return
        value = owner.get(key, MISSING)
        if namespace.before.get(key, MISSING) is value:
            self.seen[where] = owner
            if not is_symbolic(type(value)):
                self.places.append(Cell(owner, key, value, name))
            if not self.alone:
                self._read[where] = value
            if value is not os.environ and value is not os.getenv:  # read by the variable: see ``substitutes``
                self.touch(value, name, True)
        else:
            self.touch_made(value, name)

    def absent(self, name: str, owner: Any, key: str, namespace: Namespace) -> None:
        """A name was looked for in a dictionary and was not there."""
        if key not in namespace.before and (where := (id(owner), key)) not in self.seen:
            self.seen[where] = owner
            self.places.append(Cell(owner, key, MISSING, f"{name}.{key}" if name else key))


if TYPE_CHECKING or compiled.READS is None:
    Reads = PythonReads
else:
    Reads = compiled.READS.Reads
    compiled.READS.setup(
        missing=MISSING,
        cell=Cell,
        namespace_class=Namespace,
        versions=compiled.VERSIONS,
        symbolic=SYMBOLIC,
        followed=FOLLOWED,
        not_touched=(os.environ, os.getenv),
    )
