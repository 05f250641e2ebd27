"""The recorded state that a traced function read besides its arguments, compared at each call.

Parameters, buffers, submodules, functions and other objects are compared by identity, plain values
by value, lists and dictionaries item by item.  Any change is a cache miss.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from symshape.calls.modes import modes
from symshape.tracing.state import compiled
from symshape.tracing.state.compare.checker import UNREADABLE, Checker, Hooks, Places
from symshape.tracing.state.record.dictionary_reads import direct
from symshape.tracing.state.record.places import Container, Keys, Place, same, same_items


# -- Check that tensors still have their metadata: ``Tensor.data`` can be assigned a tensor of
# another shape or dtype.
#
# Such an assignment writes no dictionary and counts no version, so each call checks each tensor.
# Our own loop over them is compiled (``compiled``, 10 to 20 ns a tensor). Without it, torch's
# check of tensors is used (100 to 250 ns), and without that, a comparison in Python.
class Metadata:
    """The metadata of some tensors at one moment.

    Attributes:
        tensors: the tensors.
        quick: a quick check whose True is exact; after False, call :meth:`holds`.
    """

    __slots__ = ("_checks", "_then", "quick", "tensors")

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = tuple(tensors)
        self._then = list(map(of_tensor, self.tensors))
        self._checks: dict[Any, Callable[..., bool]] = {}
        self.quick: Callable[[], bool] = bool if tensors else lambda: True  # bool() is a no

    def holds(self) -> bool:
        """Return whether all tensors still have that metadata."""
        if self.quick():
            return True
        if self._now() != self._then:
            return False
        self.quick = self._quick()
        return True

    def like(self, of: Callable[[Any], Any]) -> Metadata:
        """Return the same metadata for other tensors, which ``of`` returns for these; they must
        have it.
        """
        made = Metadata(())
        made.tensors, made._then = tuple(map(of, self.tensors)), self._then
        made.quick = bool if made.tensors else made.quick
        return made

    def would_hold(self, of: Callable[[Any], Any]) -> bool:
        """Return whether other tensors, which ``of`` returns for these, have the metadata of
        these.
        """
        return [of_tensor(of(tensor)) for tensor in self.tensors] == self._then

    def changed(self) -> list[torch.Tensor]:
        """Return the tensors that have other metadata now."""
        return [
            tensor
            for tensor, then in zip(self.tensors, self._then, strict=True)
            if of_tensor(tensor) != then
        ]

    def _now(self) -> list[tuple[Any, ...]]:
        return list(map(of_tensor, self.tensors))

    def _quick(self) -> Callable[[], bool]:
        """Return the quickest available check for the current metadata."""
        if compiled.METADATA is not None:
            try:
                check: Callable[[], bool] = compiled.METADATA(self.tensors).same
                return check
            except TypeError:  # a sparse tensor, or one of another tracer
                pass
        self._checks[modes()] = _of_torch(self.tensors)
        return self._checked_by_torch

    def _checked_by_torch(self) -> bool:
        check = self._checks.get(modes())  # torch's check depends on them
        return check is not None and check(*self.tensors)


def of_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return a tensor's class, dtype, device, ``requires_grad``, sizes and strides (or its
    layout).
    """
    common = type(tensor), tensor.dtype, tensor.device, tensor.requires_grad
    if tensor.layout is not torch.strided:
        return (*common, tensor.shape, tensor.layout)
    if tensor.is_nested:  # it has no sizes to ask for
        return (*common, tensor.numel(), tensor.layout)
    return (*common, tensor.shape, tensor.stride())


def _of_torch(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """Return torch's own check of tensors' metadata, in C++; if unavailable, a check that always
    returns False.

    (A private name, checked on 2.11 to 2.13.)
    """
    try:
        from torch._C._dynamo.guards import TensorGuards

        sizes: list[Any] = [list(tensor.shape) for tensor in tensors]
        strides: list[Any] = [list(tensor.stride()) for tensor in tensors]
        return TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    except (ImportError, RuntimeError, TypeError):
        return lambda *_: False


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
