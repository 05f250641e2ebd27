"""The results of a call from the tensors of a padded program: the valid part, with eager's sizes
and strides.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import torch

from guards.terms import fold
from guards.terms.term import Term
from meta_fns.padding.axes import Axis, capacity, length, varies
from meta_fns.padding.padded import Padded
from symshape.graph.detached_values import detached_in
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.steps import Value
from symshape.runtime.padding.numbers import Numbers
from symshape.runtime.padding.padded_graph import Refusal
from symshape.runtime.padding.result_rows import Apart, Row, again, known, leaf, number, part, view
from symshape.runtime.padding.wide_copies import copied

__all__ = ["Part", "Results", "aliased_storages", "amount"]

Answer = Callable[[Sequence[torch.Tensor], Sequence[Any]], list[Any]]
"""``answer(tensors, leaves)`` returns the flat results of a call."""
Lend = Callable[[torch.Tensor], torch.Tensor]
"""Returns a tensor for the caller over (or instead of) one that the next replay overwrites."""
Maker = Callable[[Sequence[torch.Tensor], Sequence[Any]], torch.Tensor]
MakerAt = Callable[[Sequence[int], Lend | None], Maker]


def amount(size: Any, values: Mapping[str, int]) -> int:
    """Return the value of a size: an int, a term, or an object with a term."""
    if isinstance(size, int):
        return size
    found = fold.evaluate(size if isinstance(size, Term) else size.term, values)
    return int(found)


class Part:
    """The valid part of tensors with these axes; a view if no dimension is a product of several
    sizes.

    Args:
        axes: the axes of the tensors, one for each dimension.
        numbers: computes the sizes of a call.
    """

    def __init__(self, axes: Sequence[Axis], numbers: Numbers) -> None:
        apart = [size for axis in axes for size in (axis or (1,))]
        self._caps = [capacity(size) for size in apart]
        self._strides = [prod(self._caps[dim + 1 :]) for dim in range(len(apart))]
        self._padded = [
            (dim, cap, numbers.place(size))
            for dim, (cap, size) in enumerate(zip(self._caps, apart, strict=True))
            if varies(size)
        ]
        merged = len(apart) != len(axes)
        self._whole = numbers.places([length(axis) for axis in axes]) if merged else None
        self._apart = numbers.places(apart) if merged else None
        self._groups = tuple([len(axis) or 1 for axis in axes])

    def at(self, found: Sequence[int]) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return the function that takes the valid part of a tensor in a call with these
        numbers.
        """
        cut = [(dim, found[place]) for dim, cap, place in self._padded if found[place] != cap]
        caps, whole = (
            self._caps,
            None if self._whole is None else tuple([found[place] for place in self._whole]),
        )

        def narrow(tensor: torch.Tensor) -> torch.Tensor:
            part = tensor if whole is None else tensor.reshape(caps)
            for dim, size in cut:
                part = part.narrow(dim, 0, size)
            return part if whole is None else part.reshape(whole)

        return narrow

    def apart(self, buffer: torch.Tensor, found: Sequence[int]) -> torch.Tensor:
        """Return the valid part of a tensor as a view, with dimensions that are products split into
        their sizes.

        If there are such dimensions, the tensor must be contiguous.
        """
        sizes = self._caps.copy()
        for dim, _, place in self._padded:
            sizes[dim] = found[place]
        if sizes != self._caps:
            strides = buffer.stride() if self._apart is None else self._strides
            # one view for any number of narrower dimensions
            return buffer.as_strided(sizes, strides)
        return buffer if self._apart is None else buffer.view(sizes)

    @property
    def merged(self) -> bool:
        """Return whether a dimension is a product of several sizes."""
        return self._apart is not None

    @property
    def split(self) -> Apart | None:
        """The split of dimensions that are products of several sizes, for C++; None if there are
        none.
        """
        return None if self._apart is None else (self._apart, tuple(self._caps), self._groups)

    def sizes_apart(self, found: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of the valid part, with dimensions that are products split into their
        sizes.
        """
        assert self._apart is not None
        return tuple([found[place] for place in self._apart])


def aliased_storages(graph: Graph) -> frozenset[int]:
    """Return the ids of storages of arguments, parameters and buffers: results there use the call's
    own tensors.
    """
    roots = [
        *(each.value for each in graph.inputs),
        *(each.value for each in graph.lifted if not each.constant),
    ]
    return frozenset(id(value.storage) for value in roots)


class Layout:
    """The sizes and strides, in elements, and the storage offset of a result in one call."""

    __slots__ = ("offset", "plain", "sizes", "strides")

    def __init__(self, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> None:
        self.sizes = sizes
        self.strides = strides
        self.offset = offset
        self.plain = not offset and 0 not in strides

    def view(self, tensor: torch.Tensor, offset: int) -> torch.Tensor:
        """Return a view with this layout over a tensor's memory, from ``offset`` on."""
        return tensor.as_strided(self.sizes, self.strides, offset)

    @property
    def end(self) -> int:
        """The end of the last element in memory, in elements."""
        if 0 in self.sizes:
            return 0
        return (
            self.offset
            + 1
            + sum(
                (size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True)
            )
        )

    @property
    def dense(self) -> bool:
        """Return whether the elements fill memory from its start to their end, each exactly
        once.
        """
        reach = 1
        for stride, size in sorted(zip(self.strides, self.sizes, strict=True)):
            if size != 1 and stride != reach:
                return False
            reach *= size
        return not self.offset

    def holding(self, part: torch.Tensor) -> torch.Tensor:
        """Return a new tensor of this layout with the elements of ``part``."""
        if self.plain:
            made = torch.empty_strided(
                self.sizes, self.strides, dtype=part.dtype, device=part.device
            )
            return copied(made, part)
        memory = torch.empty(self.end, dtype=part.dtype, device=part.device)
        self.fill(memory, part)
        return self.view(memory, self.offset)

    def fill(self, memory: torch.Tensor, part: torch.Tensor) -> None:
        """Copy the elements of ``part`` to their places in memory of this layout; repeated ones
        once.
        """
        if 0 in self.sizes:
            return
        repeated = [stride == 0 for stride in self.strides]
        kept = tuple(1 if each else size for each, size in zip(repeated, self.sizes, strict=True))
        for dim, each in enumerate(repeated):
            part = part.narrow(dim, 0, 1) if each else part
        copied(memory.as_strided(kept, self.strides, self.offset), part)


class LayoutOf:
    """The layout of a traced value, by the sizes of a call.

    Args:
        value: the value.
        numbers: computes the sizes of a call.
        base: the argument relative to whose offset the value's is; None for the start of the
            memory.

    Attributes:
        sizes: the indices of the sizes among the numbers.
        strides: the indices of the strides.
        plain: whether the offset is 0 in every call.
        offset: the index of the offset.
        base: the index of the base's offset; None for the start of the memory.
    """

    def __init__(self, value: Value, numbers: Numbers, base: Value | None = None) -> None:
        spec = value.spec
        self.sizes = numbers.places(spec.sizes)
        self.strides = numbers.places(spec.strides)
        self.plain = isinstance(spec.storage_offset, int) and spec.storage_offset == 0
        self.offset = numbers.place(spec.storage_offset)
        self.base = None if base is None else numbers.place(base.spec.storage_offset)

    def at(self, found: Sequence[int]) -> Layout:
        """Return the layout in a call with these numbers."""
        offset = found[self.offset] - (0 if self.base is None else found[self.base])
        sizes, strides = (
            tuple([found[i] for i in self.sizes]),
            tuple([found[i] for i in self.strides]),
        )
        return Layout(sizes, strides, offset)


Computed = tuple[Part, LayoutOf, int]
"""A computed result: its valid part, its layout, and its index among the tensors of the padded
program.
"""


def _refused(reason: str, symbols: frozenset[str]) -> Refusal:
    return Refusal("", "the results", reason, "", symbols)


class Results:
    """The maker of a call's flat results from the tensors of a padded program.

    Args:
        graph: the traced program.
        outputs: for each computed result, its index among the tensors of the padded program, and
            the padded tensor.
        symbols: the padded symbols.
        read: tensors that the padded program reads and never writes: a result that is one of them
            is copied, not lent.

    Attributes:
        numbers: the integers of results; other code adds its own before the first call.

    Raises:
        Refusal: a result is a view of an argument, or of another result, under another dtype.
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
        self._detached = detached_in(graph)
        sharing: dict[int, list[Value]] = {}
        for value in dict.fromkeys(each for each in self._flat if isinstance(each, Value)):
            root = self._inputs.get(id(value.storage)) or self._lifted.get(id(value.storage))
            if root is not None and root.value.spec.dtype is not value.spec.dtype:
                raise _refused("one is a view of an argument under another dtype", symbols)
            if root is None:
                sharing.setdefault(id(value.storage), []).append(value)
                if sharing[id(value.storage)][0].spec.dtype is not value.spec.dtype:
                    raise _refused("one is a view of another one under another dtype", symbols)
        self.numbers = Numbers()
        self._makers: list[MakerAt] = []
        self._order: list[
            tuple[int, Any]
        ] = []  # for each result: a made tensor's index, or -1 and the value
        together = [values for values in sharing.values() if len(values) > 1]
        self._memories = [
            _Memory([self._computed(value) for value in values]) for values in together
        ]
        self._shared = [id(values[0].storage) for values in together]
        places = {
            value: place for place, value in enumerate(itertools.chain.from_iterable(together))
        }
        first = len(places)
        for each in self._flat:
            if not isinstance(each, Value):
                self._order.append((-1, each))
                continue
            if each not in places:
                places[each] = first + len(self._makers)
                self._makers.append(self._maker(each))
            self._order.append((places[each], None))

    def at(
        self, values: Mapping[str, int], found: Sequence[int], lend: Lend | None = None
    ) -> Answer:
        """Return the function for calls with these sizes: ``answer(tensors, leaves)`` returns their
        flat results.

        ``found`` are the values of :attr:`numbers`.  With ``lend`` computed tensors are not copied:
        the results are the valid parts of what ``lend`` makes of the tensors.
        """
        makers = [maker_at(found, lend) for maker_at in self._makers]
        memories = [memory.at(found) for memory in self._memories]
        order = [
            (place, None if place >= 0 else self._known(known, values))
            for place, known in self._order
        ]

        def answer(tensors: Sequence[torch.Tensor], leaves: Sequence[Any]) -> list[Any]:
            made = [maker(tensors, leaves) for maker in makers]
            if memories:
                made = [view for memory in memories for view in memory(tensors)] + made
            return [made[place] if place >= 0 else known for place, known in order]

        return answer

    def _known(self, known: Any, values: Mapping[str, int]) -> Any:
        """Return a result that is no tensor."""
        if isinstance(known, Term):
            return fold.evaluate(known, values)
        return known.evaluate(values) if isinstance(known, FloatTerm) else known

    def rows(self) -> tuple[Row, ...] | None:
        """Return how each result is made; None if one is a float or truth value of sizes, or a view
        of a parameter.
        """
        found: list[Row] = []
        first: dict[Any, int] = {}
        memories: dict[int, int] = {each: place for place, each in enumerate(self._shared)}
        for place, each in enumerate(self._flat):
            if isinstance(each, Value) and first.setdefault(each, place) != place:
                found.append(again(first[each]))
                continue
            row = self._row(each, memories)
            if row is None:
                return None
            found.append(row)
        return tuple(found)

    def _row(self, each: Any, memories: dict[int, int]) -> Row | None:
        """Return the row of one result; ``memories`` numbers memories with several results or with
        a gap.
        """
        if isinstance(each, Term) and not each.is_bool:
            return number(self.numbers.place(each))
        if not isinstance(each, Value):
            return None if isinstance(each, Term | FloatTerm) else known(each)
        own, lifted = self._inputs.get(id(each.storage)), self._lifted.get(id(each.storage))
        if own is not None:
            if each is own.value:
                return leaf(own.position)
            lies = LayoutOf(each, self.numbers, own.value)
            assert lies.base is not None
            return view(
                own.position,
                lies.sizes,
                lies.strides,
                lies.offset,
                lies.base,
                each in self._detached,
            )
        if lifted is not None:
            return known(lifted.tensor) if each is lifted.value else None
        valid, layout_of, place = self._computed(each)
        memory = None
        if id(each.storage) in memories or not layout_of.plain:
            memory = memories.setdefault(id(each.storage), len(memories)), layout_of.offset
        return part(place, layout_of.sizes, layout_of.strides, valid.split, memory)

    def _maker(self, value: Value) -> MakerAt:
        """Return the function that prepares the making of a result for the numbers of a call."""
        own, lifted = self._inputs.get(id(value.storage)), self._lifted.get(id(value.storage))
        if own is not None:
            position = own.position
            if value is own.value:
                return lambda found, lend: lambda tensors, leaves: leaves[position]
            cut = value in self._detached
            return partial(
                _view_of_argument, LayoutOf(value, self.numbers, own.value), position, cut
            )
        if lifted is not None:
            tensor = lifted.tensor
            if value is lifted.value:
                return lambda found, lend: lambda tensors, leaves: tensor
            return partial(
                _view_of_parameter, LayoutOf(value, self.numbers), tensor, value in self._detached
            )
        return partial(
            _copy, *self._computed(value), self._outputs[value][1].tensor not in self._read
        )

    def _computed(self, value: Value) -> Computed:
        place, padded = self._outputs[value]
        return Part(padded.axes, self.numbers), LayoutOf(value, self.numbers), place


class _Memory:
    """Results that share one memory: all of it is copied, in one copy if one of them fills it."""

    def __init__(self, computed: Sequence[Computed]) -> None:
        self._computed = computed

    def at(self, found: Sequence[int]) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
        """Return the function that makes the results of a call with these numbers."""
        rows = [
            (part.at(found), layout_of.at(found), place)
            for part, layout_of, place in self._computed
        ]
        layouts = [layout for _, layout, _ in rows]
        end = max(layout.end for layout in layouts)
        whole = next((row for row in rows if row[1].dense and row[1].end == end), None)

        def make(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            like = tensors[rows[0][2]]
            memory = torch.empty(end, dtype=like.dtype, device=like.device)
            for narrow, layout, place in rows if whole is None else (whole,):
                layout.fill(memory, narrow(tensors[place]))
            return [layout.view(memory, layout.offset) for layout in layouts]

        return make


def _view_of_argument(
    layout_of: LayoutOf, position: int, cut: bool, found: Sequence[int], lend: Lend | None
) -> Maker:
    layout = layout_of.at(found)

    def make(tensors: Sequence[torch.Tensor], leaves: Sequence[Any]) -> torch.Tensor:
        leaf: torch.Tensor = leaves[position].detach() if cut else leaves[position]
        return layout.view(leaf, int(leaf.storage_offset()) + layout.offset)

    return make


def _view_of_parameter(
    layout_of: LayoutOf, tensor: torch.Tensor, cut: bool, found: Sequence[int], lend: Lend | None
) -> Maker:
    layout = layout_of.at(found)
    # its memory now
    return lambda tensors, leaves: layout.view(tensor.detach() if cut else tensor, layout.offset)


def _copy(
    part: Part,
    layout_of: LayoutOf,
    place: int,
    may_lend: bool,
    found: Sequence[int],
    lend: Lend | None,
) -> Maker:
    """Return the maker of a copy of a computed tensor's valid part, or of the part itself if it may
    be lent.
    """
    narrow = part.at(found)
    if lend is not None and may_lend:
        return lambda tensors, leaves: narrow(lend(tensors[place]))
    layout = layout_of.at(found)
    return lambda tensors, leaves: layout.holding(narrow(tensors[place]))
