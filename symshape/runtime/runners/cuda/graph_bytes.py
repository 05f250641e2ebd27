"""The bytes that a graph takes on the device, counted from the sizes of its tensors before its
capture.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from functools import cache
from math import prod
from typing import Any

import torch

from guards.terms import fold
from guards.terms.term import Term
from meta_fns import TensorSpec
from meta_fns.core.layout import contiguous_strides
from meta_fns.core.registry import aliasing
from meta_fns.torch_internals import OpOverload
from symshape.graph.graph import Graph
from symshape.graph.steps import (
    Node,
    Value,
    map_argument,
    values_in,
    writes_nothing,
    written_values,
)
from symshape.runtime.padding.numbers import Numbers
from symshape.runtime.runners.graph_store import Weight
from symshape.runtime.runners.padded.buffers import aligned_bytes
from symshape.torch_internals.dispatch import DispatchKey

__all__ = ["integer_at", "memory_owners", "weight_of"]


def weight_of(graph: Graph, values: Mapping[str, int], buffers: int | None = None) -> Weight:
    """Return the bytes of a graph at these values of its symbols: inputs and results are its own,
    the rest is shared.

    The shared bytes are the most that live at one moment; kernels may take more for themselves
    while they run.

    Args:
        graph: the graph.
        values: the values of its symbols.
        buffers: for a bucket, the number of first inputs that are buffers; their memory is shared,
            and so is that of the results.
    """
    known = _lifetimes.setdefault(graph, {})
    found = known.get(buffers)
    if found is None:
        found = known[buffers] = _Lifetimes(graph, buffers, values)
    return found.weight(values)


class _Lifetimes:
    """The lifetimes of a graph's tensors, for its bytes at any sizes.

    Args:
        graph: the graph.
        buffers: as for :func:`weight_of`.
        values: values of its symbols, at which it is decided which reshapes copy.
    """

    def __init__(self, graph: Graph, buffers: int | None, values: Mapping[str, int]) -> None:
        self._are_buffers = buffers is not None
        self._numbers = Numbers()
        self._sizes: dict[tuple[tuple[int, ...], int], int] = {}
        roots = memory_owners(graph, values)
        inputs = {each.value for each in graph.inputs}
        kept = {roots.get(value, value) for value in values_in(graph.outputs)}
        lifted = {each.value for each in graph.lifted}
        common = [each.value for each in graph.inputs[: buffers or 0]]
        self._buffers = [
            (self._numbers.places(value.spec.sizes), value.spec.dtype) for value in common
        ]
        self._own, self._results = map(self._places, (inputs - set(common), kept - inputs - lifted))
        self._moments = self._in_turn(graph, roots, inputs | kept | lifted)

    def _places(self, values: Iterable[Value]) -> list[int]:
        """Return the index of each tensor's byte count; tensors of equal sizes share one."""
        found = []
        for value in values:
            key = self._numbers.places(value.spec.sizes), value.spec.dtype.itemsize
            found.append(self._sizes.setdefault(key, len(self._sizes)))
        return found

    def _in_turn(
        self, graph: Graph, roots: Mapping[Value, Value], free: set[Value]
    ) -> list[tuple[list[int], list[int]]]:
        """Return for each step the tensors first made by it and those last used by it, except those
        in ``free``.
        """
        last: dict[Value, int] = {}
        for position, step in enumerate(graph.steps):
            if isinstance(step, Node):
                for value in (*step.reads, *(out for out in step.outputs if out is not None)):
                    last[roots.get(value, value)] = position
        dying: dict[int, list[Value]] = {}
        for value, position in last.items():
            dying.setdefault(position, []).append(value)
        born: set[Value] = set()
        found = []
        for position, step in enumerate(graph.steps):
            made = step.outputs if isinstance(step, Node) else ()
            new = [
                each
                for each in dict.fromkeys(made)
                if each is not None and each not in roots and each not in free
            ]
            new = [each for each in new if each not in born]
            born.update(new)
            gone = [each for each in dying.get(position, ()) if each in born]
            found.append((self._places(new), self._places(gone)))
        return found

    def weight(self, values: Mapping[str, int]) -> Weight:
        """Return the bytes at these values of symbols."""
        numbers = self._numbers.at(values)
        sizes = [
            prod([numbers[place] for place in places]) * itemsize
            for places, itemsize in self._sizes
        ]
        own, results = (
            sum([sizes[place] for place in each]) for each in (self._own, self._results)
        )
        most = now = 0
        for new, gone in self._moments:
            for place in new:
                now += sizes[place]
            most = max(most, now)
            for place in gone:
                now -= sizes[place]
        if not self._are_buffers:
            return Weight(own + results, most)
        shared = sum(
            aligned_bytes([numbers[place] for place in places], dtype)
            for places, dtype in self._buffers
        )
        return Weight(own, most + results, shared)


_lifetimes: weakref.WeakKeyDictionary[Graph, dict[int | None, _Lifetimes]] = (
    weakref.WeakKeyDictionary()
)


def memory_owners(graph: Graph, values: Mapping[str, int]) -> dict[Value, Value]:
    """Return for each result that shares memory with an earlier value the value that owns the
    memory.

    Args:
        graph: the graph.
        values: the values of its symbols, which decide whether a ``reshape`` returns a view or a
            copy.
    """
    roots: dict[Value, Value] = {}
    for node in graph.nodes:
        if not _copies(node, values):
            _note_roots(node, roots)
    return roots


def _copies(node: Node, values: Mapping[str, int]) -> bool:
    """Return whether an op that returns a view where it can, such as ``reshape``, has to copy at
    these sizes.
    """
    if not _may_copy(node.op) or not node.reads or _is_contiguous(node.reads[0].spec, values):
        return False
    made: dict[Value, torch.Tensor] = {}

    def bare(value: Any) -> Any:
        if not isinstance(value, Value):
            return integer_at(value, values)
        spec = value.spec
        if value not in made:
            sizes, strides = (
                [integer_at(each, values) for each in part] for part in (spec.sizes, spec.strides)
            )
            made[value] = torch.empty_strided(sizes, strides, dtype=spec.dtype, device="meta")
        return made[value]

    args = [map_argument(arg, bare) for arg in node.args]
    with torch.no_grad():
        result = node.op(
            *args, **{name: map_argument(arg, bare) for name, arg in node.kwargs.items()}
        )
    return bool(result.untyped_storage()._cdata != made[node.reads[0]].untyped_storage()._cdata)


@cache
def _may_copy(op: OpOverload) -> bool:
    """Return whether an op returns a view or a copy: its schema says that it is a view, but it is
    made of other ops.
    """
    first = op._schema.returns[:1]
    views = bool(first) and first[0].alias_info is not None and not first[0].alias_info.is_write
    return views and op.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)


def _is_contiguous(spec: TensorSpec, values: Mapping[str, int]) -> bool:
    """Return whether a tensor has the strides of a new one at these sizes, so that any reshape of
    it is a view.
    """
    sizes, strides = (
        [integer_at(each, values) for each in part] for part in (spec.sizes, spec.strides)
    )
    return list(contiguous_strides(sizes)) == strides


def integer_at(size: Any, values: Mapping[str, int]) -> int:
    """Return a size at these values of symbols."""
    if isinstance(size, int):
        return int(size)
    term: Term = size if isinstance(size, Term) else size.term
    return int(fold.evaluate(term, values))


def _note_roots(node: Node, roots: dict[Value, Value]) -> None:
    """Record the results that share memory with an argument: views, and tensors written in
    place.
    """
    if aliasing(node.op).is_functional and writes_nothing(node):
        return
    written = list(written_values(node))
    viewed = [
        value
        for position, argument in enumerate(node.op._schema.arguments)
        if argument.alias_info is not None
        and not argument.alias_info.is_write
        and position < len(node.args)
        for value in values_in(node.args[position])
    ]
    source = (written or viewed)[:1]
    for value in node.outputs:
        if source and value is not None and value is not source[0]:
            roots[value] = roots.get(source[0], source[0])
