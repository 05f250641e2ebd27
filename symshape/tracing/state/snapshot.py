"""What a traced function read besides its arguments: the places that a recording found, compared at each call.

Parameters, buffers, submodules, functions and other objects are compared by identity, plain values by value, lists and
dictionaries item by item.  A change is a miss.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from symshape.calls.modes import modes
from symshape.tracing.state.checker import Checker
from symshape.tracing.state.comparison import Hooks, Places
from symshape.tracing.state.direct import direct
from symshape.tracing.state.places import Container, Keys, Place, same, same_items


class State:
    """The state that one program was traced in; ``unchanged`` is what each call asks.

    Args:
        places: what was read.
        containers: lists, dictionaries, sets … that were read.
        begun: the functions that ran.
    """

    __slots__ = ("_checker", "_known", "_metadata", "_tensor_checks", "_tensors", "begun", "containers", "places")

    def __init__(
        self,
        places: Iterable[Place] = (),
        containers: Iterable[Container] = (),
        begun: Iterable[weakref.ref[types.FunctionType]] = (),
    ) -> None:
        self.places = list(places)
        self.containers = list(containers)
        self.begun = list(begun)
        self._known = {(id(place.owner), place.key) for place in self.places}
        self._known |= {(id(each.owner), "") for each in self.containers}
        tensors = (each.value for each in self.places if isinstance(each.value, torch.Tensor))
        items = (item for each in self.containers for item in each.items if isinstance(item, torch.Tensor))
        self._tensors = list({id(each): each for each in (*tensors, *items)}.values())
        self._metadata = list(map(_metadata, self._tensors))
        self._checker: Checker | None = None
        self._tensor_checks: dict[Any, Callable[..., bool]] = {}

    @property
    def empty(self) -> bool:
        """Whether the function reads nothing that can change."""
        return not self.places and not self.containers

    def covers(self, other: State) -> bool:
        """Whether this state compares everything that another one compares."""
        return other._known <= self._known

    def and_(self, other: State) -> State:
        """What either compares; both hold now."""
        known = self._known
        places = [each for each in other.places if (id(each.owner), each.key) not in known]
        containers = [each for each in other.containers if (id(each.owner), "") not in known]
        return State((*self.places, *places), (*self.containers, *containers))

    # -- the question of each call
    def unchanged(self) -> bool:
        """Whether every place still holds what it held when the program was traced."""
        return (self._checker or self._make_checker())() and self._same_tensors()

    def _make_checker(self) -> Checker:
        cells, others = direct(self.places)
        empty = {id(each) for each in self.containers if isinstance(each.owner, dict) and not each.items}
        filled = [each for each in self.containers if id(each) not in empty]
        hooks = [Hooks(each.owner) for each in self.containers if id(each) in empty]  # mostly: no order to compare
        self._checker = Checker(Places(cells, filled, hooks=hooks, others=others))
        return self._checker

    def _same_tensors(self) -> bool:
        """Whether tensors still have their metadata (``Tensor.data`` can be given another shape or dtype)."""
        if not self._tensors:
            return True
        now = modes()  # torch's check depends on them
        check = self._tensor_checks.get(now)
        if check is not None and check(*self._tensors):
            return True
        if list(map(_metadata, self._tensors)) != self._metadata:
            return False
        self._tensor_checks[now] = _tensor_check(self._tensors)
        return True

    def changes(self) -> list[str]:
        """What is different now, for people."""
        found = [place.name for place in self.places if not _holds(place)]
        found += [each.name for each in self.containers if not same_items(each.read(), each.items)]
        if self._metadata != list(map(_metadata, self._tensors)):
            then = dict(zip(map(id, self._tensors), self._metadata, strict=True))
            names = {id(place.value): place.name for place in self.places if place.name not in found}
            changed = [each for each in self._tensors if _metadata(each) != then[id(each)]]
            found += [f"{names[id(each)]}.data" if id(each) in names else "a tensor's data" for each in changed]
        return list(dict.fromkeys(found))


def _holds(place: Place) -> bool:
    return place.holds() if isinstance(place, Keys) else same(place.read(), place.value)


def _metadata(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        return tensor.dtype, tensor.device, tensor.requires_grad, tensor.shape, tensor.layout
    return tensor.dtype, tensor.device, tensor.requires_grad, tensor.shape, tensor.stride()


def _tensor_check(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """Torch's own check of tensors' metadata, in C++; without it, one that never answers yes.

    (A private name, checked on 2.11 to 2.13.)
    """
    try:
        from torch._C._dynamo.guards import TensorGuards

        sizes: list[Any] = [list(tensor.shape) for tensor in tensors]
        strides: list[Any] = [list(tensor.stride()) for tensor in tensors]
        return TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    except (ImportError, RuntimeError, TypeError):
        return lambda *_: False
