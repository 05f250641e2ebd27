"""The requests that one run of a graph makes of the allocator, in order, at given sizes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import prod

import attrs

from symshape.cost.allocator import Allocator, Block
from symshape.graph.graph import Graph
from symshape.graph.steps import Value, values_in
from symshape.runtime.runners.cuda.graph_bytes import integer_at, memory_owners


@attrs.frozen
class Requests:
    """The requests of one run.

    Attributes:
        steps: for each op the bytes that it asks for, each with a number, and the numbers that are freed after it.
        kept: the numbers of the requests that are not freed: the results.
    """

    steps: tuple[tuple[tuple[tuple[int, int], ...], tuple[int, ...]], ...]
    kept: tuple[int, ...]

    def run(self, allocator: Allocator, *, pool: Hashable = None, stream: Hashable = 0) -> list[Block]:
        """Make the requests of an allocator; return the blocks of the results.

        Raises:
            OutOfMemory: the allocator's limit is too low.
        """
        held: dict[int, Block] = {}
        for born, gone in self.steps:
            for number, size in born:
                held[number] = allocator.allocate(size, pool=pool, stream=stream)
            for number in gone:
                allocator.free(held.pop(number))
        return [held[number] for number in self.kept]


def requests_of(graph: Graph, values: Mapping[str, int]) -> Requests:
    """Return the requests of one run of a graph, step by step, at these values of its symbols.

    Inputs and lifted tensors are there already. A tensor lives until the last use of a value that shares its memory.
    """
    owners = memory_owners(graph, values)
    there = {each.value for each in graph.inputs} | {each.value for each in graph.lifted}
    returned = [owners.get(value, value) for value in values_in(graph.outputs)]
    last: dict[Value, int] = {}
    nodes = graph.nodes
    for position, node in enumerate(nodes):
        for value in (*node.reads, *(each for each in node.outputs if each is not None)):
            last[owners.get(value, value)] = position
    for value in returned:
        last.pop(value, None)
    dying: dict[int, list[Value]] = {}
    for value, position in last.items():
        dying.setdefault(position, []).append(value)
    numbers: dict[Value, int] = {}
    steps = []
    for position, node in enumerate(nodes):
        born: list[tuple[int, int]] = []
        for made in node.outputs:
            if made is None or made in owners or made in there or made in numbers:
                continue
            size = bytes_at(made, values)
            if size:
                numbers[made] = len(numbers)
                born.append((numbers[made], size))
        gone = tuple([numbers[value] for value in dying.get(position, ()) if value in numbers])
        steps.append((tuple(born), gone))
    kept = dict.fromkeys(numbers[value] for value in returned if value in numbers)
    return Requests(tuple(steps), tuple(kept))


def bytes_at(value: Value, values: Mapping[str, int]) -> int:
    """Return the bytes of a tensor at these values of symbols, an expanded dimension counted once."""
    spec = value.spec
    sizes = [integer_at(size, values) for size in spec.sizes]
    if spec.strides:
        sizes = [
            1 if type(stride) is int and stride == 0 else size for size, stride in zip(sizes, spec.strides, strict=True)
        ]
    return prod(sizes) * spec.dtype.itemsize
