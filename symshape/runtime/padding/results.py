"""From the tensors of a padded program to a call's own results: the valid part, with eager's sizes and strides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs
import torch

from guards.terms import fold
from guards.terms.term import Term
from meta_fns.padding.axes import Axis, capacity, length
from meta_fns.padding.padded import Padded
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.steps import Value
from symshape.runtime.padding.transform import Refusal

__all__ = ["Results", "aliased_storages", "amount", "narrower"]

Answer = Callable[[Sequence[torch.Tensor], Sequence[Any]], list[Any]]
"""``answer(tensors, leaves)``: the flat results of a call."""
Lend = Callable[[torch.Tensor], torch.Tensor]
"""A tensor for the caller over (or instead of) one that the next replay overwrites."""
Maker = Callable[[Sequence[torch.Tensor], Sequence[Any]], torch.Tensor]


def amount(size: Any, values: Mapping[str, int]) -> int:
    """The value of a size: an int, a term, or anything that stands for a term."""
    if isinstance(size, int):
        return size
    found = fold.evaluate(size if isinstance(size, Term) else size.term, values)
    return int(found)


def narrower(axes: Sequence[Axis], values: Mapping[str, int]) -> Callable[[torch.Tensor], torch.Tensor]:
    """What answers the valid part of tensors with these axes; a view where no dimension is made of several sizes."""
    apart = [size for axis in axes for size in (axis or (1,))]
    caps, true = [capacity(size) for size in apart], [amount(size, values) for size in apart]
    whole = tuple(amount(length(axis), values) for axis in axes)
    cut = [(dim, size) for dim, (cap, size) in enumerate(zip(caps, true, strict=True)) if cap != size]
    merged = len(apart) != len(axes)

    def narrow(tensor: torch.Tensor) -> torch.Tensor:
        part = tensor.reshape(caps) if merged else tensor
        for dim, size in cut:
            part = part.narrow(dim, 0, size)
        return part.reshape(whole) if merged else part

    return narrow


def aliased_storages(graph: Graph) -> frozenset[int]:
    """Ids of the storages of arguments, parameters and buffers: what lies there is answered from the call's own."""
    roots = [*(each.value for each in graph.inputs), *(each.value for each in graph.lifted if not each.constant)]
    return frozenset(id(value.storage) for value in roots)


@attrs.frozen(eq=False)
class Layout:
    """Sizes and strides, in elements, and the storage offset of a result in one call."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    plain: bool = attrs.field(
        init=False, default=attrs.Factory(lambda self: not self.offset and 0 not in self.strides, takes_self=True)
    )

    @staticmethod
    def of(value: Value, values: Mapping[str, int]) -> Layout:
        """Those of a traced value."""
        spec = value.spec
        sizes = tuple(amount(size, values) for size in spec.sizes)
        strides = tuple(amount(stride, values) for stride in spec.strides)
        return Layout(sizes, strides, amount(spec.storage_offset, values))

    def view(self, tensor: torch.Tensor, offset: int) -> torch.Tensor:
        """The same layout over a tensor's memory, from ``offset`` on."""
        return tensor.as_strided(self.sizes, self.strides, offset)

    def holding(self, part: torch.Tensor) -> torch.Tensor:
        """A fresh tensor of this layout with the elements of ``part``."""
        if self.plain or not part.numel():
            return torch.empty_strided(self.sizes, self.strides, dtype=part.dtype, device=part.device).copy_(part)
        reach = 1 + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))
        memory = torch.empty(self.offset + reach, dtype=part.dtype, device=part.device)
        repeated = [stride == 0 for stride in self.strides]
        kept = tuple(1 if each else size for each, size in zip(repeated, self.sizes, strict=True))
        for dim, each in enumerate(repeated):
            part = part.narrow(dim, 0, 1) if each else part
        memory.as_strided(kept, self.strides, self.offset).copy_(part)
        return self.view(memory, self.offset)


def _refused(reason: str, symbols: frozenset[str]) -> Refusal:
    return Refusal("", "the results", reason, "", symbols)


class Results:
    """Makes the flat results of calls from the tensors of a padded program.

    Args:
        graph: the traced program.
        outputs: for each computed result, its place among the tensors of the padded program, and its axes.
        symbols: the padded symbols.
        read: what the padded program reads and never writes: it is copied whatever happens.

    Raises:
        Refusal: two results share memory, or one is a view of an argument under another dtype.
    """

    def __init__(
        self,
        graph: Graph,
        outputs: Mapping[Value, tuple[int, Padded]],
        symbols: frozenset[str] = frozenset(),
        read: Collection[Value] = (),
    ) -> None:
        self._flat = graph.outputs
        self._outputs = outputs
        self._read = frozenset(read)
        self._inputs = {id(each.value.storage): each for each in graph.inputs}
        self._lifted = {id(each.value.storage): each for each in graph.lifted if not each.constant}
        seen: dict[int, Value] = {}
        for value in self._flat:
            if not isinstance(value, Value):
                continue
            root = self._inputs.get(id(value.storage)) or self._lifted.get(id(value.storage))
            if root is not None and root.value.spec.dtype is not value.spec.dtype:
                raise _refused("one is a view of an argument under another dtype", symbols)
            if root is None and seen.setdefault(id(value.storage), value) is not value:
                raise _refused("two of them share memory", symbols)

    def at(self, values: Mapping[str, int], lend: Lend | None = None) -> Answer:
        """The answer of calls with these sizes: ``answer(tensors, leaves)`` gives their flat results.

        With ``lend`` what is computed is not copied: the results are the valid parts of what it makes of the tensors.
        """
        places: dict[Value, int] = {}
        makers: list[Maker] = []
        order: list[tuple[int, Any]] = []  # which made tensor, or (-1) which value
        for each in self._flat:
            if isinstance(each, Value):
                if each not in places:
                    places[each] = len(makers)
                    makers.append(self._maker(each, values, lend))
                order.append((places[each], None))
            elif isinstance(each, Term):
                order.append((-1, fold.evaluate(each, values)))
            else:
                order.append((-1, each.evaluate(values) if isinstance(each, FloatTerm) else each))

        def answer(tensors: Sequence[torch.Tensor], leaves: Sequence[Any]) -> list[Any]:
            made = [maker(tensors, leaves) for maker in makers]
            return [made[place] if place >= 0 else known for place, known in order]

        return answer

    def _maker(self, value: Value, values: Mapping[str, int], lend: Lend | None) -> Maker:
        layout = Layout.of(value, values)
        own = self._inputs.get(id(value.storage))
        if own is not None:
            position = own.position
            if value is own.value:
                return lambda tensors, leaves: leaves[position]
            offset = layout.offset - amount(own.value.spec.storage_offset, values)
            return lambda tensors, leaves: layout.view(leaves[position], leaves[position].storage_offset() + offset)
        lifted = self._lifted.get(id(value.storage))
        if lifted is not None:
            tensor, whole = lifted.tensor, value is lifted.value
            return lambda tensors, leaves: tensor if whole else layout.view(tensor, layout.offset)
        place, padded = self._outputs[value]
        narrow = narrower(padded.axes, values)
        if lend is not None and padded.tensor not in self._read:
            return lambda tensors, leaves: narrow(lend(tensors[place]))
        return lambda tensors, leaves: layout.holding(narrow(tensors[place]))
