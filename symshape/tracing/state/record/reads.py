"""The notes of a recording, and the most frequent ways to add to them: names loaded, entries read
or found absent.

A trace does this thousands of times, so there are two implementations: :class:`PythonReads`, and
one in C++ (``compiled_reads.cpp``), which is used if it is built.
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
from symshape.tracing.state.record.places import MISSING, Cell, Container, Place
from symshape.tracing.symbolic.tensors import SymbolicTensor

SYMBOLIC = (SymbolicTensor, torch.SymInt, torch.SymFloat, torch.SymBool)
is_symbolic: Callable[[type], bool] = functools.lru_cache(maxsize=4096)(
    lambda kind: issubclass(kind, SYMBOLIC)
)
FOLLOWED = (torch.Tensor, torch.nn.Module, list, dict)
"""The classes of objects for which the recording notes how the program got them: see
``replacement``.
"""


def entries_of(owner: Any) -> dict[Any, Any]:
    """Return the entries of a dictionary or of a view of a class, bypassing a ``__getitem__`` of
    its own.
    """
    return dict(dict.items(owner) if isinstance(owner, dict) else owner)


class Namespace:
    """A dictionary of attributes or globals, with its contents from before the trace.

    Attributes:
        name: the name for people.
        owner: the dictionary; for a class, a view of it.
        before: the old contents.
        own: whether plain values count; they do not in objects of Python and torch.
        kind: the class, if the dictionary is a class's.
        open: whether trusted code may write there without a record.
        given: whether it belongs to an object among the arguments.
    """

    __slots__ = ("_untouched", "before", "given", "kind", "name", "open", "own", "owner")

    def __init__(self, name: str, owner: Any, own: bool, kind: type | None = None) -> None:
        self.name, self.owner, self.own, self.kind = name, owner, own, kind
        self._untouched: Callable[[None], bool] | None = None
        if type(owner) is dict:
            # made first, so that writes of other threads in between are seen
            if compiled.VERSIONS is not None:
                self._untouched = compiled.VERSIONS((owner,)).unchanged
            self.before = owner.copy()
        else:
            self.before = entries_of(owner)
        self.open = self.given = False

    def unchanged(self) -> bool:
        """Return whether the very same names, in the same order, have the very same values."""
        if self._untouched is not None and self._untouched(None):  # not written since
            return True
        owner, before = self.owner, self.before
        if len(owner) != len(before):
            return False
        return not before or (
            all(map(is_, owner.values(), before.values())) and all(map(is_, owner, before))
        )


class PythonReads:
    """The notes of a recording, described in ``Recorder``, and the methods that add to them."""

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
        """Record the load of a value that the program itself stored in its place."""
        raise NotImplementedError

    def _still(self, owner: Any, key: Any, name: str) -> None:
        """Refuse a value that another thread changes while it is traced."""
        raise NotImplementedError

    def namespace(self, name: str, owner: Any, own: bool = True) -> Namespace:
        """Return a dictionary's namespace, with its contents from when it was first met."""
        found = self.namespaces.get(id(owner))
        if found is None:
            found = self.namespaces[id(owner)] = Namespace(name, owner, own)
        return found

    def touch(self, value: Any, name: str, placed: bool = False) -> None:
        """Record the load of a value that existed before the trace, or may have, and of what the
        value refers to.

        Args:
            value: the value.
            name: the name for people.
            placed: whether a place or a container records where it was found, so that a replacement
                would be noticed.
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
        """Record the read of a dictionary entry; it is no place if the trace itself wrote the entry
        before.
        """
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
            # read by variable: see ``substitutes``
            if value is not os.environ and value is not os.getenv:
                self.touch(value, name, True)
        else:
            self.touch_made(value, name)

    def absent(self, name: str, owner: Any, key: str, namespace: Namespace) -> None:
        """Record that a name was looked up in a dictionary and was not there."""
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
