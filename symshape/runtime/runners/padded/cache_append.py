"""Fusion of the ops that append to a padded cache: one pass over memory, where single ops take
three.

``cat`` of a padded tensor and its continuation leaves a gap.  The padding rule closes the gap by
gathering at positions known at run time, and attention then masks what is beyond the last valid
key.  Before a program is captured, those three ops (``cat``, ``index_select``, ``where``) become
one op that writes the cache and then appends at its valid end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch

from guards.terms import boolean
from guards.terms.term import Term
from meta_fns.torch_internals import OpOverload
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Step, Value, map_argument, values_in
from symshape.runtime.padding.padded_graph import PaddedGraph

__all__ = ["APPENDED", "append", "without_unread"]

_aten = torch.ops.aten


_library = torch.library.Library("symshape", "FRAGMENT")
_library.define(
    "appended(Tensor first, Tensor[] rest, Tensor start, Tensor over, Tensor fill, int dim) -> "
    "Tensor"
)


@torch.library.impl(_library, "appended", "CompositeExplicitAutograd")
def _appended(
    first: torch.Tensor,
    rest: Sequence[torch.Tensor],
    start: torch.Tensor,
    over: torch.Tensor,
    fill: torch.Tensor,
    dim: int,
) -> torch.Tensor:
    """Return ``first`` up to ``start``, then ``rest``, then ``fill``, in new memory as long as the
    parts together.

    ``first`` (…, n, …), ``rest`` tensors (…, m, …), ``start`` 0-d int64, ``over`` bool of n + m:
    the positions from ``start`` on; ``fill`` 0-d.
    """
    behind = rest[0] if len(rest) == 1 else torch.cat(list(rest), dim)
    length, more = first.size(dim), behind.size(dim)
    sizes = list(first.shape)
    sizes[dim] = length + more
    made = first.new_empty(sizes)
    shape = [1] * first.dim()
    shape[dim] = length
    torch.where(over[:length].view(shape), fill, first, out=made.narrow(dim, 0, length))
    made.narrow(dim, length, more).fill_(fill)
    index = start.view(1) if more == 1 else start + torch.arange(more, device=start.device)
    return made.index_copy_(dim, index, behind)


APPENDED: OpOverload = torch.ops.symshape.appended.default
"""The fused op for ``cat``, ``index_select`` and ``where``."""


def append(padded: PaddedGraph) -> Graph:
    """Return the graph of a padded program with such three ops fused into one."""
    graph = padded.graph
    makers = {
        step.outputs[0]: step
        for step in graph.nodes
        if step.single and step.outputs and step.outputs[0]
    }
    uses: Counter[Value] = Counter()
    for step in graph.steps:
        if isinstance(step, Node):
            uses.update(step.reads)
    returned = set(values_in(graph.outputs))
    replaced: dict[int, Node] = {}
    dropped: set[int] = set()
    instead: dict[Value, Value] = {}
    for step in graph.nodes:
        found = _Found.of(step, makers, padded)
        if (
            found is None
            or uses[found.read] != 1
            or uses[found.joined] != 1
            or found.joined in returned
        ):
            continue
        replaced[id(step)] = attrs.evolve(step, op=APPENDED, args=found.args, kwargs={})
        dropped.update(map(id, (makers[found.read], makers[found.joined])))
        if found.read in returned:  # callers read only the valid part, which is equal in both
            instead[found.read] = step.outputs[0]  # type: ignore[assignment]
    if not replaced:
        return graph
    steps: list[Step] = [
        replaced.get(id(step), step) for step in graph.steps if id(step) not in dropped
    ]
    outputs = map_argument(
        graph.outputs, lambda leaf: instead.get(leaf, leaf) if type(leaf) is Value else leaf
    )
    return without_unread(attrs.evolve(graph, steps=tuple(steps), outputs=outputs))


_NUMBERING = frozenset(
    {
        *(
            _aten.arange.default,
            _aten.ge.Tensor,
            _aten.rsub.Scalar,
            _aten.mul.Tensor,
            _aten.add.Tensor,
        ),
        *(_aten.clamp.default, _aten.scalar_tensor.default),
    }
)


def without_unread(graph: Graph) -> Graph:
    """Return the graph without ops on positions whose results are no longer read."""
    read = set(values_in(graph.outputs))
    kept: list[Step] = []
    for step in reversed(graph.steps):
        if isinstance(step, Node):
            if step.op in _NUMBERING and read.isdisjoint(step.outputs):
                continue
            read.update(step.reads)
        kept.append(step)
    return attrs.evolve(graph, steps=tuple(reversed(kept)))


@attrs.frozen
class _Found:
    """A ``where`` that can be fused: the results of its ``cat`` and ``index_select``, and the fused
    op's arguments.
    """

    joined: Value
    read: Value
    args: tuple[Any, ...]

    @classmethod
    def of(cls, node: Node, makers: Mapping[Value, Node], padded: PaddedGraph) -> _Found | None:
        """Return the fusion of a node; None if the node is another op or its inputs do not
        match.
        """
        if node.op is not _aten.where.self or node.kwargs:
            return None
        mask, read, fill = node.args
        select, number = makers.get(read), makers.get(fill)
        if not _is(select, _aten.index_select.default) or not _is(
            number, _aten.scalar_tensor.default
        ):
            return None
        joined, dim, index = select.args  # type: ignore[union-attr]
        join, gap = makers.get(joined), _gap(makers.get(index), makers)
        if not _is(join, _aten.cat.default) or gap is None:
            return None
        parts, *along = join.args  # type: ignore[union-attr]
        first, *rest = parts
        start, over, length = gap
        sizes = padded.known_sizes
        lengths = [each.spec.sizes[dim] for each in parts]
        specs = [each.spec for each in (*parts, fill, read)]
        fits = (
            (along or [0]) == [dim]
            and len({spec.dtype for spec in specs}) == 1
            and length == lengths[0]
            and all(lengths)
            and over.spec.sizes == (sum(lengths),)
            and start in sizes
            and _ends_at(mask, dim, makers, padded, sizes[start] + sum(lengths[1:]))
        )
        return cls(joined, read, (first, rest, start, over, fill, dim)) if fits else None


def _is(node: Node | None, op: Any) -> bool:
    return node is not None and node.op is op


def _gap(clamp: Node | None, makers: Mapping[Value, Node]) -> tuple[Value, Value, int] | None:
    """Match positions that skip the first part's padding: return its valid end, the mask beyond,
    its capacity.
    """
    if not _is(clamp, _aten.clamp.default):
        return None
    moved = makers.get(clamp.args[0])  # type: ignore[union-attr]
    if not _is(moved, _aten.add.Tensor):
        return None
    place, step = (makers.get(each) for each in moved.args[:2])  # type: ignore[union-attr]
    if not _is(place, _aten.arange.default) or not _is(step, _aten.mul.Tensor):
        return None
    over, lacking = step.args  # type: ignore[union-attr]
    beyond, short = makers.get(over), makers.get(lacking)
    if not _is(beyond, _aten.ge.Tensor) or not _is(short, _aten.rsub.Scalar):
        return None
    end, length = short.args[:2]  # type: ignore[union-attr]
    if beyond.args[0] is not place.outputs[0] or beyond.args[1] is not end:  # type: ignore[union-attr]
        return None
    return end, over, length


def _ends_at(
    mask: Value, dim: int, makers: Mapping[Value, Node], padded: PaddedGraph, end: Term
) -> bool:
    """Return whether a mask is true up to this size in a dimension, and of size 1 in the others."""
    shape = list(mask.spec.sizes)
    node = makers.get(mask)
    while _is(node, _aten.view.default):
        node = makers.get(node.args[0])  # type: ignore[union-attr]
    if not _is(node, _aten.lt.Tensor):
        return False
    place, held = node.args  # type: ignore[union-attr]
    size = padded.known_sizes.get(held)
    if size is None or not _is(makers.get(place), _aten.arange.default):
        return False
    alone = shape == [1] * dim + [place.spec.sizes[0]] + [1] * (len(shape) - dim - 1)
    return alone and padded.region.known(boolean.eq(size, end))
