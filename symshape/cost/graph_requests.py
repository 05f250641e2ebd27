"""The requests that one run of a graph makes of the allocator, in order, at given sizes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import count
from math import prod
from types import MappingProxyType
from typing import TypeVar

import attrs

from symshape.cost.allocator import Allocator, Block
from symshape.cost.workspaces.column_sums import Multiprocessors, partial_sums
from symshape.cost.workspaces.op_requests import OpRequests
from symshape.graph.graph import Graph
from symshape.graph.steps import Value, values_in
from symshape.runtime.runners.cuda.graph_bytes import integer_at, memory_owners


@attrs.frozen
class Requests:
    """The requests of one run.

    Attributes:
        steps: for each op the numbers of its requests with their bytes, in order, 0 bytes where one
            is freed while the op runs; and the numbers that are freed after it.
        kept: the numbers of the requests that are not freed: the results.
        measured: the positions of the ops whose own requests are among the steps.
    """

    steps: tuple[tuple[tuple[tuple[int, int], ...], tuple[int, ...]], ...]
    kept: tuple[int, ...]
    measured: frozenset[int] = frozenset()

    def run(
        self, allocator: Allocator, *, pool: Hashable = None, stream: Hashable = 0
    ) -> list[Block]:
        """Make the requests of an allocator; return the blocks of the results.

        Raises:
            OutOfMemory: the allocator's limit is too low.
        """
        held: dict[int, Block] = {}
        for born, gone in self.steps:
            change(allocator, held, born, pool=pool, stream=stream)
            for number in gone:
                allocator.free(held.pop(number))
        return [held[number] for number in self.kept]


K = TypeVar("K", bound=Hashable)


def change(
    allocator: Allocator,
    held: dict[K, Block],
    changes: Iterable[tuple[K, int]],
    *,
    pool: Hashable = None,
    stream: Hashable = 0,
) -> None:
    """Make requests of an allocator, in order; 0 bytes free a request that is held."""
    for number, size in changes:
        if size:
            held[number] = allocator.allocate(size, pool=pool, stream=stream)
        else:
            allocator.free(held.pop(number))


def requests_of(
    graph: Graph,
    values: Mapping[str, int],
    measured: Mapping[int, OpRequests] = MappingProxyType({}),
) -> Requests:
    """Return the requests of one run of a graph, step by step, at these values of its symbols.

    Inputs and lifted tensors are there already. A tensor lives until the last use of a value that
    shares its memory.

    Args:
        graph: the graph.
        values: the values of its symbols.
        measured: what ops were seen to ask for at these values, by the position of the node; other
            ops ask for their results, and sums over rows for partial sums.
    """
    device = Multiprocessors.here()
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
    fresh = count().__next__
    known: set[int] = set()
    steps = []
    for position, node in enumerate(nodes):
        born: dict[int, int] = {}
        for made in node.outputs:
            if made is None or made in owners or made in there or made in numbers:
                continue
            size = bytes_at(made, values)
            if size:
                numbers[made] = fresh()
                born[numbers[made]] = size
        gone = tuple([numbers[value] for value in dying.get(position, ()) if value in numbers])
        seen = measured[position].holding(list(born), fresh) if position in measured else None
        if seen is not None:
            known.add(position)
        else:
            partial = [(fresh(), size) for size in partial_sums(node, values, device)]
            seen = (*born.items(), *partial, *((number, 0) for number, _ in partial))
        steps.append((seen, gone))
    kept = dict.fromkeys(numbers[value] for value in returned if value in numbers)
    return Requests(tuple(steps), tuple(kept), frozenset(known))


def bytes_at(value: Value, values: Mapping[str, int]) -> int:
    """Return the bytes of a tensor at these values of symbols, an expanded dimension counted
    once.
    """
    spec = value.spec
    sizes = [integer_at(size, values) for size in spec.sizes]
    if spec.strides:
        sizes = [
            1 if type(stride) is int and stride == 0 else size
            for size, stride in zip(sizes, spec.strides, strict=True)
        ]
    return prod(sizes) * spec.dtype.itemsize
