"""How many bytes a graph takes on the device, counted from the sizes of its tensors before it is captured."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from meta_fns.core.registry import aliasing
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Value, values_in, writes_nothing, written_values
from symshape.runtime.padding.results import amount
from symshape.runtime.runners.bucket_memory import aligned_bytes
from symshape.runtime.runners.graph_store import Weight

__all__ = ["weight_of"]


def weight_of(graph: Graph, values: Mapping[str, int], buffers: int | None = None) -> Weight:
    """The bytes of a graph at these values of its symbols: inputs and results its own, the rest shared.

    What is shared is the most that lives at one moment; kernels may take more for themselves while they run.

    Args:
        graph: the graph.
        values: of its symbols.
        buffers: of a bucket, how many of its inputs, the first ones, are buffers; the memory of these is shared, and so
            is that of its results.
    """
    roots: dict[Value, Value] = {}
    for node in graph.nodes:
        _note_roots(node, roots)
    inputs = {each.value for each in graph.inputs}
    kept = {roots.get(value, value) for value in values_in(graph.outputs)}
    common = [each.value for each in graph.inputs[: buffers or 0]]
    results = kept - inputs - {each.value for each in graph.lifted}
    own, of_results = (sum(_bytes(value, values) for value in each) for each in (inputs - set(common), results))
    free = inputs | kept | {each.value for each in graph.lifted}
    shared = sum(
        aligned_bytes([amount(size, values) for size in value.spec.sizes], value.spec.dtype) for value in common
    )
    most = _most(graph, roots, free, values)
    return Weight(own + of_results, most) if buffers is None else Weight(own, most + of_results, shared)


def _most(graph: Graph, roots: Mapping[Value, Value], free: set[Value], values: Mapping[str, int]) -> int:
    """The most bytes of values that live at one moment, without those in ``free``."""
    last: dict[Value, int] = {}
    for position, step in enumerate(graph.steps):
        if isinstance(step, Node):
            for value in (*step.reads, *(out for out in step.outputs if out is not None)):
                last[roots.get(value, value)] = position
    dying: dict[int, list[Value]] = {}
    for value, position in last.items():
        dying.setdefault(position, []).append(value)
    born: set[Value] = set()
    now = most = 0
    for position, step in enumerate(graph.steps):
        if isinstance(step, Node):
            for made in step.outputs:
                if made is not None and made not in roots and made not in free and made not in born:
                    born.add(made)
                    now += _bytes(made, values)
        most = max(most, now)
        now -= sum(_bytes(value, values) for value in dying.get(position, ()) if value in born)
    return most


def _note_roots(node: Node, roots: dict[Value, Value]) -> None:
    """Results that lie in the memory of an argument: views, and what is written in place."""
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


def _bytes(value: Value, values: Mapping[str, int]) -> int:
    return prod(amount(size, values) for size in value.spec.sizes) * value.spec.dtype.itemsize
