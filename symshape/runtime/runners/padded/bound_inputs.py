"""The bound inputs of a program, read at the caller's address instead of copied: parameters,
caches, tables.

A program run through ``torch.compile`` receives its parameters at every call, at the same address
each time.  A captured graph may read them there.  An input whose sizes and strides never vary is
*bound* to its address; a graph is replayed only for calls whose bound inputs are exactly where they
were at its capture.  An input that moves before it has stayed for a while is copied from then on,
like inputs whose sizes vary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

import torch

from meta_fns.core.layout import contiguous_strides
from symshape.graph.graph import Graph

__all__ = ["BoundInputs"]

_STAYED = 16  # calls at one address after which a move is worth another capture

_data_ptr = torch.Tensor.data_ptr


class BoundInputs:
    """The addresses of one program's bound inputs, shared by all its buckets.

    Args:
        graph: the program.

    Attributes:
        steady: indices of the inputs that may be bound: their sizes and strides are constants.
        places: indices of the inputs that are bound now.
        addresses: the addresses of the bound inputs.
    """

    def __init__(self, graph: Graph) -> None:
        self.steady = tuple(
            place for place, each in enumerate(graph.inputs) if _constant(each.value.spec)
        )
        self.addresses: list[int] = []
        self._changed: dict[int, int] = {}
        self._calls = 0
        self._bind(self.steady)

    def _bind(self, places: tuple[int, ...]) -> None:
        self.places = places
        self._pick: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]] = (
            itemgetter(*places)
            if len(places) > 1
            else lambda inputs: [inputs[place] for place in places]
        )

    def see(self, inputs: Sequence[torch.Tensor]) -> None:
        """Record the addresses of a call's inputs, and unbind inputs that keep moving."""
        if not self.places:
            return
        self._calls += 1
        addresses = list(map(_data_ptr, self._pick(inputs)))
        if addresses != self.addresses:
            self._moved(addresses, inputs)

    def stayed(self) -> None:
        """Count a call whose bound inputs have not moved."""
        self._calls += 1

    def _moved(self, addresses: list[int], inputs: Sequence[torch.Tensor]) -> None:
        known = dict(zip(self.places, self.addresses, strict=False))
        kept = []
        for place, address in zip(self.places, addresses, strict=True):
            if known.get(place) == address:
                kept.append(place)
            elif place not in known or self._calls - self._changed[place] > _STAYED:
                self._changed[place] = self._calls
                kept.append(place)
        if len(kept) != len(self.places):
            self._bind(tuple(kept))
        self.addresses = list(map(_data_ptr, self._pick(inputs)))

    def let_go(self) -> None:
        """Unbind all inputs: from now on they are copied."""
        self._bind(())
        self.addresses = []


def _constant(spec: object) -> bool:
    """Return whether a tensor has the same sizes in every call, and is contiguous."""
    sizes, strides = getattr(spec, "sizes", ()), getattr(spec, "strides", ())
    if not all(type(each) is int for each in (*sizes, *strides)) or 0 in sizes:
        return False
    return tuple(strides) == tuple(contiguous_strides(sizes))
