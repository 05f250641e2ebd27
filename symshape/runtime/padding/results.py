"""From the tensors of a padded program to a call's own results: the valid part, with eager's sizes and strides."""

from __future__ import annotations

import itertools
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

__all__ = ["Results", "aliased_storages", "amount", "apart", "narrower", "part_of"]

Answer = Callable[[Sequence[torch.Tensor], Sequence[Any]], list[Any]]
"""``answer(tensors, leaves)``: the flat results of a call."""
Lend = Callable[[torch.Tensor], torch.Tensor]
"""A tensor for the caller over (or instead of) one that the next replay overwrites."""
Maker = Callable[[Sequence[torch.Tensor], Sequence[Any]], torch.Tensor]
Views = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]


def amount(size: Any, values: Mapping[str, int]) -> int:
    """The value of a size: an int, a term, or anything that stands for a term."""
    if isinstance(size, int):
        return size
    found = fold.evaluate(size if isinstance(size, Term) else size.term, values)
    return int(found)


def apart(axes: Sequence[Axis], values: Mapping[str, int]) -> tuple[int, ...] | None:
    """The sizes of a tensor with these axes where each of them is a dimension; None where each is one already."""
    if all(len(axis) < 2 for axis in axes):
        return None
    return tuple(amount(size, values) for axis in axes for size in (axis or (1,)))


def part_of(buffer: torch.Tensor, axes: Sequence[Axis], values: Mapping[str, int]) -> torch.Tensor:
    """The valid part of a buffer, a view, in which each size is a dimension."""
    sizes = [size for axis in axes for size in (axis or (1,))]
    part = buffer.view([capacity(size) for size in sizes]) if len(sizes) != len(axes) else buffer
    for dim, size in enumerate(sizes):
        true = amount(size, values)
        part = part if part.size(dim) == true else part.narrow(dim, 0, true)
    return part


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

    @property
    def end(self) -> int:
        """Where its last element ends in memory."""
        if 0 in self.sizes:
            return 0
        return self.offset + 1 + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))

    @property
    def dense(self) -> bool:
        """Whether its elements fill memory from its start to its end, each once."""
        reach = 1
        for stride, size in sorted(zip(self.strides, self.sizes, strict=True)):
            if size != 1 and stride != reach:
                return False
            reach *= size
        return not self.offset

    def holding(self, part: torch.Tensor) -> torch.Tensor:
        """A fresh tensor of this layout with the elements of ``part``."""
        if self.plain or not part.numel():
            return torch.empty_strided(self.sizes, self.strides, dtype=part.dtype, device=part.device).copy_(part)
        memory = torch.empty(self.end, dtype=part.dtype, device=part.device)
        self.fill(memory, part)
        return self.view(memory, self.offset)

    def fill(self, memory: torch.Tensor, part: torch.Tensor) -> None:
        """Puts the elements of ``part`` where they lie in memory of this layout; repeated ones once."""
        if 0 in self.sizes:
            return
        repeated = [stride == 0 for stride in self.strides]
        kept = tuple(1 if each else size for each, size in zip(repeated, self.sizes, strict=True))
        for dim, each in enumerate(repeated):
            part = part.narrow(dim, 0, 1) if each else part
        memory.as_strided(kept, self.strides, self.offset).copy_(part)


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
        Refusal: one is a view of an argument, or of another result, under another dtype.
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
        sharing: dict[int, list[Value]] = {}
        for value in dict.fromkeys(each for each in self._flat if isinstance(each, Value)):
            root = self._inputs.get(id(value.storage)) or self._lifted.get(id(value.storage))
            if root is not None and root.value.spec.dtype is not value.spec.dtype:
                raise _refused("one is a view of an argument under another dtype", symbols)
            if root is None:
                sharing.setdefault(id(value.storage), []).append(value)
                if sharing[id(value.storage)][0].spec.dtype is not value.spec.dtype:
                    raise _refused("one is a view of another one under another dtype", symbols)
        self._together = [values for values in sharing.values() if len(values) > 1]

    def at(self, values: Mapping[str, int], lend: Lend | None = None) -> Answer:
        """The answer of calls with these sizes: ``answer(tensors, leaves)`` gives their flat results.

        With ``lend`` what is computed is not copied: the results are the valid parts of what it makes of the tensors.
        """
        places: dict[Value, int] = {}
        together = [self._memory(group, values) for group in self._together]
        for each in itertools.chain.from_iterable(self._together):
            places[each] = len(places)
        first = len(places)
        makers: list[Maker] = []
        order: list[tuple[int, Any]] = []  # which made tensor, or (-1) which value
        for each in self._flat:
            if isinstance(each, Value):
                if each not in places:
                    places[each] = first + len(makers)
                    makers.append(self._maker(each, values, lend))
                order.append((places[each], None))
            elif isinstance(each, Term):
                order.append((-1, fold.evaluate(each, values)))
            else:
                order.append((-1, each.evaluate(values) if isinstance(each, FloatTerm) else each))

        def answer(tensors: Sequence[torch.Tensor], leaves: Sequence[Any]) -> list[Any]:
            made = [maker(tensors, leaves) for maker in makers]
            if together:
                made = [view for memory in together for view in memory(tensors)] + made
            return [made[place] if place >= 0 else known for place, known in order]

        return answer

    def _memory(self, group: Sequence[Value], values: Mapping[str, int]) -> Views:
        """Makes the results that share one memory: all of it is copied, once where one of them fills it."""
        layouts = [Layout.of(value, values) for value in group]
        end = max(layout.end for layout in layouts)
        parts = [(self._outputs[value][0], narrower(self._outputs[value][1].axes, values)) for value in group]
        rows = list(zip(layouts, *zip(*parts, strict=True), strict=True))
        whole = next((row for row in rows if row[0].dense and row[0].end == end), None)

        def make(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            like = tensors[rows[0][1]]
            memory = torch.empty(end, dtype=like.dtype, device=like.device)
            for layout, place, narrow in rows if whole is None else (whole,):
                layout.fill(memory, narrow(tensors[place]))
            return [layout.view(memory, layout.offset) for layout in layouts]

        return make

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
