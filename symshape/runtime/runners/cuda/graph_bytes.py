"""The bytes that a graph takes on the device, counted from the sizes of its tensors before its capture."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Mapping
from math import prod

from meta_fns.core.registry import aliasing
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Value, values_in, writes_nothing, written_values
from symshape.runtime.padding.numbers import Numbers
from symshape.runtime.runners.graph_store import Weight
from symshape.runtime.runners.padded.buffers import aligned_bytes

__all__ = ["memory_owners", "weight_of"]


def weight_of(graph: Graph, values: Mapping[str, int], buffers: int | None = None) -> Weight:
    """Return the bytes of a graph at these values of its symbols: inputs and results are its own, the rest is shared.

    The shared bytes are the most that live at one moment; kernels may take more for themselves while they run.

    Args:
        graph: the graph.
        values: the values of its symbols.
        buffers: for a bucket, the number of first inputs that are buffers; their memory is shared, and so is that of
            the
            results.
    """
    known = _lifetimes.setdefault(graph, {})
    found = known.get(buffers)
    if found is None:
        found = known[buffers] = _Lifetimes(graph, buffers)
    return found.weight(values)


class _Lifetimes:
    """The lifetimes of a graph's tensors, for its bytes at any sizes.

    Args:
        graph: the graph.
        buffers: as for :func:`weight_of`.
    """

    def __init__(self, graph: Graph, buffers: int | None) -> None:
        self._are_buffers = buffers is not None
        self._numbers = Numbers()
        self._sizes: dict[tuple[tuple[int, ...], int], int] = {}
        roots = memory_owners(graph)
        inputs = {each.value for each in graph.inputs}
        kept = {roots.get(value, value) for value in values_in(graph.outputs)}
        lifted = {each.value for each in graph.lifted}
        common = [each.value for each in graph.inputs[: buffers or 0]]
        self._buffers = [(self._numbers.places(value.spec.sizes), value.spec.dtype) for value in common]
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
        """Return for each step the tensors first made by it and those last used by it, except those in ``free``."""
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
            new = [each for each in dict.fromkeys(made) if each is not None and each not in roots and each not in free]
            new = [each for each in new if each not in born]
            born.update(new)
            gone = [each for each in dying.get(position, ()) if each in born]
            found.append((self._places(new), self._places(gone)))
        return found

    def weight(self, values: Mapping[str, int]) -> Weight:
        """Return the bytes at these values of symbols."""
        numbers = self._numbers.at(values)
        sizes = [prod([numbers[place] for place in places]) * itemsize for places, itemsize in self._sizes]
        own, results = (sum([sizes[place] for place in each]) for each in (self._own, self._results))
        most = now = 0
        for new, gone in self._moments:
            for place in new:
                now += sizes[place]
            most = max(most, now)
            for place in gone:
                now -= sizes[place]
        if not self._are_buffers:
            return Weight(own + results, most)
        shared = sum(aligned_bytes([numbers[place] for place in places], dtype) for places, dtype in self._buffers)
        return Weight(own, most + results, shared)


_lifetimes: weakref.WeakKeyDictionary[Graph, dict[int | None, _Lifetimes]] = weakref.WeakKeyDictionary()


def memory_owners(graph: Graph, copied: Collection[Value] = ()) -> dict[Value, Value]:
    """Return for each result that shares memory with an earlier value the value that owns the memory.

    Args:
        graph: the graph.
        copied: results that are known to have memory of their own, though their op's schema says that they may not.
    """
    roots: dict[Value, Value] = {}
    for node in graph.nodes:
        if not copied or not node.outputs or node.outputs[0] not in copied:
            _note_roots(node, roots)
    return roots


def _note_roots(node: Node, roots: dict[Value, Value]) -> None:
    """Record the results that share memory with an argument: views, and tensors written in place."""
    if aliasing(node.op).is_functional and writes_nothing(node):
        return
    written = list(written_values(node))
    viewed = [
        value
        for position, argument in enumerate(node.op._schema.arguments)
        if argument.alias_info is not None and not argument.alias_info.is_write and position < len(node.args)
        for value in values_in(node.args[position])
    ]
    source = (written or viewed)[:1]
    for value in node.outputs:
        if source and value is not None and value is not source[0]:
            roots[value] = roots.get(source[0], source[0])
