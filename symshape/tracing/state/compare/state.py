"""The recorded state that a traced function read besides its arguments, compared at each call.

Parameters, buffers, submodules, functions and other objects are compared by identity, plain values
by value, lists and dictionaries item by item.  Any change is a cache miss.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from symshape.tracing.state.compare.checker import Checker
from symshape.tracing.state.compare.generated_check import UNREADABLE, Hooks, Places
from symshape.tracing.state.compare.tensor_metadata import Metadata
from symshape.tracing.state.record.dictionary_reads import direct
from symshape.tracing.state.record.places import Container, Keys, Place, same, same_items


class State:
    """The state that one program was traced in; each call asks ``unchanged``.

    Args:
        places: the places that were read.
        containers: lists, dictionaries, sets … that were read.
        begun: the functions that ran.
        metadata: the metadata of the tensors among them, if known.
        pinned: ids of objects that may not be replaced by equivalent ones (see ``replacement``);
            None for all.
    """

    __slots__ = (
        *("_checker", "_known", "_metadata", "_quick", "_quick_tensors"),
        *("begun", "containers", "pinned", "places"),
    )

    def __init__(
        self,
        places: Iterable[Place] = (),
        containers: Iterable[Container] = (),
        begun: Iterable[weakref.ref[types.FunctionType]] = (),
        pinned: frozenset[int] | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        self.places = list(places)
        self.containers = list(containers)
        self.begun = list(begun)
        self.pinned = pinned
        self._known: set[tuple[int, Any]] | None = None
        self._metadata = Metadata(self._tensors()) if metadata is None else metadata
        self._checker: Checker | None = None
        self._quick: Callable[[], bool] = bool  # always False until the checker is made
        self._quick_tensors: Callable[[], bool] = bool

    def _tensors(self) -> list[torch.Tensor]:
        kept = {id(each.value): each.value for each in self.places}
        tensors = (each for each in kept.values() if isinstance(each, torch.Tensor))
        filled = (each.items for each in self.containers if each.items)
        items = (item for each in filled for item in each if isinstance(item, torch.Tensor))
        return list({id(each): each for each in (*tensors, *items)}.values())

    def like(
        self, places: Iterable[Place], containers: Iterable[Container], of: Callable[[Any], Any]
    ) -> State:
        """Return this state for other objects; ``of`` returns the replacement of a tensor, with the
        same metadata.
        """
        return State(places, containers, self.begun, self.pinned, self._metadata.like(of))

    @property
    def empty(self) -> bool:
        """Return whether the function reads nothing that can change."""
        return not self.places and not self.containers

    def covers(self, other: State) -> bool:
        """Return whether this state compares everything that another one compares."""
        return other._compared() <= self._compared()

    def _compared(self) -> set[tuple[int, Any]]:
        """Return where all compared places are; computed when first asked."""
        known = self._known
        if known is None:
            known = {(id(place.owner), place.key) for place in self.places}
            known |= {(id(each.owner), "") for each in self.containers}
            self._known = known
        return known

    def and_(self, other: State) -> State:
        """Return the state that compares everything in either state; both must hold now."""
        known = self._compared()
        places = [each for each in other.places if (id(each.owner), each.key) not in known]
        containers = [each for each in other.containers if (id(each.owner), "") not in known]
        pinned = None if self.pinned is None or other.pinned is None else self.pinned | other.pinned
        begun = [*self.begun, *other.begun]
        return State((*self.places, *places), (*self.containers, *containers), begun, pinned)

    def metadata_holds(self, of: Callable[[Any], Any]) -> bool:
        """Return whether the current replacement of each tensor has the metadata that the tensor
        had.
        """
        return self._metadata.would_hold(of)

    # -- asked at each call
    def unchanged(self) -> bool:
        """Return whether every place still holds the value from the trace."""
        try:
            if self._quick() and self._quick_tensors():
                return True
        except UNREADABLE:
            pass
        return self._look()

    def make_ready(self) -> None:
        """Make the checker of the places, unless there is one."""
        if self._checker is None:
            self.unchanged()

    def _look(self) -> bool:
        """Return the exact answer after the quick check said no; make the checker if there is
        none.
        """
        checker, metadata = self._checker or self._make_checker(), self._metadata
        found = checker() and metadata.holds()
        self._quick, self._quick_tensors = checker.quick, metadata.quick
        return found

    def _make_checker(self) -> Checker:
        cells, others = direct(self.places)
        empty = {
            id(each) for each in self.containers if isinstance(each.owner, dict) and not each.items
        }
        filled = [each for each in self.containers if id(each) not in empty]
        # mostly hooks, without an order
        hooks = [Hooks(each.owner) for each in self.containers if id(each) in empty]
        self._checker = Checker(Places(cells, filled, hooks=hooks, others=others))
        return self._checker

    def changes(self) -> list[str]:
        """Return the names, for people, of the places that are different now."""
        found = [place.name for place in self.places if not _holds(place)]
        found += [each.name for each in self.containers if not same_items(each.read(), each.items)]
        names = {id(place.value): place.name for place in self.places if place.name not in found}
        for each in self._metadata.changed():
            found.append(f"{names[id(each)]}.data" if id(each) in names else "a tensor's data")
        return list(dict.fromkeys(found))


def _holds(place: Place) -> bool:
    return place.holds() if isinstance(place, Keys) else same(place.read(), place.value)
