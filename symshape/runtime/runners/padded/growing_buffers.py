"""Buffers of a padded program that are longer than the inputs copied to them, so that appends need
no new memory.

For ``cat((past[i, 0], k), 2)`` of a cache that is copied to one of the program's buffers, the
buffer is made longer. The program sees the part of the buffer that is the cache, and the append
writes from the end of the valid part on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import attrs
import torch

from meta_fns.core.layout import contiguous_strides
from meta_fns.core.registry import aliasing
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Step, Value, values_in, written_values
from symshape.runtime.padding.padded_graph import PaddedGraph
from symshape.runtime.runners.padded.cache_append import APPENDED, without_unread
from symshape.runtime.runners.padded.cache_append_op import APPENDED_IN_PLACE

__all__ = ["Extended", "extended"]

_aten = torch.ops.aten
_ALIGNED = 16  # bytes: the largest alignment that kernels check for

_SHARE_UNSAID = frozenset(
    {_aten._unsafe_view.default, _aten.dropout.default, _aten.conj_physical.default}
)
"""Ops whose result may be their argument, or a view of it, though their schema does not say so."""

Box = tuple[tuple[int, int], ...]
"""The bounds of a part of a tensor: start and end in each dimension."""


@attrs.frozen
class Extended:
    """A graph that appends to its inputs in place.

    Attributes:
        graph: the graph, which takes those inputs as parts of longer buffers.
        more: by index of an input: the dimension in which its buffer is longer, and by how much.
    """

    graph: Graph
    more: Mapping[int, tuple[int, int]]


@attrs.frozen
class _Region:
    """A view of an input, as a part of it with permuted dimensions.

    Attributes:
        place: the index of the input.
        dims: for each dimension of the view, the dimension of the input.
        box: the part of the input that the view covers.
    """

    place: int
    dims: tuple[int, ...]
    box: Box

    def at(self, dim: int, start: int, end: int) -> _Region:
        """Return the part of the view from ``start`` to ``end`` in one of its dimensions."""
        box, whole = list(self.box), self.dims[dim]
        begin = box[whole][0]
        box[whole] = begin + start, begin + end
        return attrs.evolve(self, box=tuple(box))

    def without(self, dim: int) -> _Region:
        """Return the view without one of its dimensions, which has size 1."""
        return attrs.evolve(self, dims=self.dims[:dim] + self.dims[dim + 1 :])

    def permuted(self, order: Sequence[int]) -> _Region:
        """Return the view with its dimensions in another order."""
        return attrs.evolve(self, dims=tuple([self.dims[dim] for dim in order]))

    def size(self, dim: int) -> int:
        """Return the size of the view in one of its dimensions."""
        start, end = self.box[self.dims[dim]]
        return end - start


@attrs.frozen
class _Append:
    """An append to a view, with the dimension of the input that it extends."""

    node: Node
    region: _Region
    axis: int

    @property
    def more(self) -> int:
        """The number of new positions."""
        dim, size = self.node.args[-1], self.node.outputs[0].spec.sizes  # type: ignore[union-attr]
        return int(size[dim]) - self.region.size(dim)


def extended(graph: Graph, padded: PaddedGraph, places: Collection[int]) -> Extended:
    """Return the graph of a padded program with in-place appends to inputs that nothing else reads.

    Args:
        graph: the graph with each append as one op
            (:func:`symshape.runtime.runners.padded.cache_append.append`).
        padded: the program that the graph was made from.
        places: the inputs whose buffers belong to the program and may be made longer.
    """
    left = {place for place, _ in padded.written} | {each.place for each in padded.rewrites}
    # reshaped
    left |= {place for place, axes in enumerate(padded.axes) if any(len(axis) > 1 for axis in axes)}
    uses = _Uses(graph, [place for place in places if place not in left])
    more: dict[int, tuple[int, int]] = {}
    replaced: dict[int, Node] = {}
    for place, appends in uses.appends.items():
        longer = appends[0].axis, max(each.more for each in appends)
        if place in uses.refused or not _fit(appends, graph.inputs[place].value, longer):
            continue
        more[place] = longer
        for each in appends:
            first, rest, start, _, fill, dim = each.node.args
            replaced[id(each.node)] = attrs.evolve(
                each.node, op=APPENDED_IN_PLACE, args=(first, rest, start, fill, dim), kwargs={}
            )
    if not more:
        return Extended(graph, {})
    steps: list[Step] = [replaced.get(id(step), step) for step in graph.steps]
    return Extended(without_unread(attrs.evolve(graph, steps=tuple(steps))), more)


class _Uses:
    """The readers of a graph's inputs.

    Attributes:
        appends: by index of an input, the appends to parts of it.
        refused: the inputs that other ops read, or whose memory the graph returns, or writes to
            afterwards.
    """

    def __init__(self, graph: Graph, places: Collection[int]) -> None:
        self.appends: dict[int, list[_Append]] = {}
        self.refused: set[int] = set()
        self._regions: dict[Value, _Region] = {}
        self._made: dict[
            Value, int
        ] = {}  # results of appends and their views, with the input's index
        for place in places:
            value = graph.inputs[place].value
            sizes = value.spec.sizes
            self._regions[value] = _Region(
                place, tuple(range(len(sizes))), tuple([(0, size) for size in sizes])
            )
        for step in graph.steps:
            if isinstance(step, Node):
                self._read(step)
        for value in values_in(graph.outputs):
            if value in self._regions:
                self.refused.add(self._regions[value].place)
            if value in self._made:
                self.refused.add(self._made[value])

    def _read(self, node: Node) -> None:
        for value in node.reads:
            if value in self._regions and (
                node.reads.count(value) > 1 or not self._followed(node, value)
            ):
                self.refused.add(self._regions[value].place)
            if value in self._made:
                self._note_view(node, value)

    def _followed(self, node: Node, value: Value) -> bool:
        """Return whether a reader of a view is an append to it, or itself a view of a known
        part.
        """
        region = self._regions[value]
        if node.kwargs or not node.args or node.args[0] is not value:
            return False
        if node.op is APPENDED:
            axis = region.dims[node.args[-1]]
            self.appends.setdefault(region.place, []).append(_Append(node, region, axis))
            self._made.update({each: region.place for each in node.outputs if each is not None})
            return True
        view = _VIEWS.get(node.op)
        parts = None if view is None else view(region, *node.args[1:])
        if parts is None:
            return False
        for each, part in zip(node.outputs, parts, strict=True):
            if each is not None:
                self._regions[each] = part
        return True

    def _note_view(self, node: Node, value: Value) -> None:
        """Record views of an append's result as sharing its memory; refuse writes to it and
        ``as_strided``.
        """
        place = self._made[value]
        if value in written_values(node) or "as_strided" in node.op.name():
            self.refused.add(place)
        if node.op in _SHARE_UNSAID or not aliasing(node.op).is_functional:
            self._made.update({each: place for each in node.outputs if each is not None})


def _fit(appends: Sequence[_Append], value: Value, longer: tuple[int, int]) -> bool:
    """Return whether all appends to an input fit into one longer buffer, each with the layout of
    new memory.
    """
    axis, more = longer
    sizes = list(value.spec.sizes)
    whole = (0, sizes[axis])
    if any(each.axis != axis or each.region.box[axis] != whole for each in appends):
        return False
    sizes[axis] += more
    strides = contiguous_strides(sizes)
    for each in appends:
        made = each.node.outputs[0].spec  # type: ignore[union-attr]
        offset = sum(
            start * stride for (start, _), stride in zip(each.region.box, strides, strict=True)
        )
        if offset * made.dtype.itemsize % _ALIGNED:
            return False
        own = [strides[dim] for dim in each.region.dims]
        if any(
            a != b for size, a, b in zip(made.sizes, own, made.strides, strict=True) if size != 1
        ):
            return False
    return _apart([each.region.box for each in appends])


def _apart(boxes: Sequence[Box], dim: int = 0) -> bool:
    """Return whether no two of these parts share an element; False if comparing dimension by
    dimension cannot tell.
    """
    if len(boxes) < 2:
        return True
    if dim == len(boxes[0]):
        return False
    alike: dict[tuple[int, int], list[Box]] = {}
    for box in boxes:
        alike.setdefault(box[dim], []).append(box)
    spans = sorted(alike)
    if any(end > start for (_, end), (start, _) in pairwise(spans)):
        return False
    return all(_apart(each, dim + 1) for each in alike.values())


# --- views whose part of an input is known --------------------------------------------------------

Parts = Sequence[_Region] | None


def _select(region: _Region, dim: int, index: int) -> Parts:
    dim %= len(region.dims)
    index = index + region.size(dim) if index < 0 else index
    return [region.at(dim, index, index + 1).without(dim)]


def _unbind(region: _Region, dim: int = 0) -> Parts:
    dim %= len(region.dims)
    return [region.at(dim, index, index + 1).without(dim) for index in range(region.size(dim))]


def _slice(
    region: _Region, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Parts:
    dim %= len(region.dims)
    begin, stop, _ = slice(start, end).indices(region.size(dim))
    return [region.at(dim, begin, max(begin, stop))] if step == 1 else None


def _split(region: _Region, size: int, dim: int = 0) -> Parts:
    dim %= len(region.dims)
    whole = region.size(dim)
    return [region.at(dim, start, min(start + size, whole)) for start in range(0, whole, size)]


def _permute(region: _Region, order: Sequence[int]) -> Parts:
    return [region.permuted([dim % len(region.dims) for dim in order])]


def _transpose(region: _Region, one: int, other: int) -> Parts:
    order = list(range(len(region.dims)))
    order[one], order[other] = order[other], order[one]
    return [region.permuted(order)]


_VIEWS: Mapping[Any, Callable[..., Parts]] = {
    _aten.select.int: _select,
    _aten.unbind.int: _unbind,
    _aten.slice.Tensor: _slice,
    _aten.split.Tensor: _split,
    _aten.permute.default: _permute,
    _aten.transpose.int: _transpose,
    _aten.alias.default: lambda region: [region],
    _aten.detach.default: lambda region: [region],
}
