"""Containers that a program makes and stores in several places: each call makes one object for all
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from symshape.calls.variables import CONTAINERS, SharedContainer
from symshape.torch_internals import pytree
from symshape.tracing.state.undo.writes import Change, Changes


class SharedContainers:
    """The containers that a trace made and found in at least two places when it ended.

    Args:
        changes: the program's writes.
        leaf_of: returns the form of a leaf in a write, from the leaf and its place.
    """

    def __init__(self, changes: Changes, leaf_of: Callable[[Any, Change], Any]) -> None:
        self._is_kept, self._leaf_of = changes.is_kept, leaf_of
        self._made: dict[int, SharedContainer] = {}
        seen: set[int] = set()
        self._shared: set[int] = set()
        for change in changes.changes:
            for each in self._containers(change.value, seen):
                (self._shared if id(each) in seen else seen).add(id(each))

    def _containers(self, value: Any, seen: set[int]) -> Iterator[Any]:
        """Yield each container once for each place that refers to it, but its contents only
        once.
        """
        if self._is_kept(value):
            return
        if type(value) in CONTAINERS:
            known = id(value) in seen
            yield value
            if known:
                return
        if isinstance(value, Mapping):
            items: Any = list(value.values())
        else:
            items = value if isinstance(value, (list, tuple, *CONTAINERS)) else ()
        for item in items:
            yield from self._containers(item, seen)

    def nested(self, change: Change) -> tuple[list[Any], pytree.TreeSpec]:
        """Return the leaves of a change for its write, and how they nest."""
        if self._shared.isdisjoint(change.containers):
            return [self._leaf_of(each, change) for each in change.leaves], change.tree
        return self._flat(change.value, change, id(change.value) not in change.containers)

    def _flat(self, value: Any, change: Change, inside: bool) -> tuple[list[Any], pytree.TreeSpec]:
        """Return leaves and structure; ``inside``: of a container's contents, rather than of a
        reference to it.
        """
        leaves, tree = pytree.tree_flatten(
            value,
            is_leaf=lambda each: (
                not (inside and each is value) and (id(each) in self._shared or self._is_kept(each))
            ),
        )
        return [
            self._of(each, change) if id(each) in self._shared else self._leaf_of(each, change)
            for each in leaves
        ], tree

    def _of(self, container: Any, change: Change) -> SharedContainer:
        found = self._made.get(id(container))
        if found is None:
            found = self._made[id(container)] = SharedContainer(
                *self._flat(container, change, True)
            )
        return found
