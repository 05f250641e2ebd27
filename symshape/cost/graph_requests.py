"""The requests that one run of a graph makes of the allocator, in order, at given sizes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache
from math import prod
from typing import Any

import attrs
import torch

from guards.terms import fold
from guards.terms.term import Term
from meta_fns.torch_internals import OpOverload
from symshape.cost.allocator import Allocator, Block
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Value, map_argument, values_in
from symshape.runtime.runners.cuda.graph_bytes import memory_owners
from symshape.torch_internals.dispatch import DispatchKey


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
    copied = {each for node in graph.nodes if _copies(node, values) for each in node.outputs if each is not None}
    owners = memory_owners(graph, copied)
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


def _copies(node: Node, values: Mapping[str, int]) -> bool:
    """Return whether an op that returns a view where it can, such as ``reshape``, has to copy at these sizes."""
    if not _may_copy(node.op) or not node.reads or not isinstance(node.outputs[0], Value):
        return False
    made: dict[Value, torch.Tensor] = {}

    def bare(value: Any) -> Any:
        if not isinstance(value, Value):
            return integer_at(value, values)
        spec = value.spec
        if value not in made:
            sizes, strides = ([integer_at(each, values) for each in part] for part in (spec.sizes, spec.strides))
            made[value] = torch.empty_strided(sizes, strides, dtype=spec.dtype, device="meta")
        return made[value]

    args = [map_argument(arg, bare) for arg in node.args]
    with torch.no_grad():
        result = node.op(*args, **{name: map_argument(arg, bare) for name, arg in node.kwargs.items()})
    return bool(result.untyped_storage()._cdata != made[node.reads[0]].untyped_storage()._cdata)


@cache
def _may_copy(op: OpOverload) -> bool:
    """Return whether an op returns a view or a copy: its schema says that it is a view, but it is made of other ops."""
    first = op._schema.returns[:1]
    views = bool(first) and first[0].alias_info is not None and not first[0].alias_info.is_write
    return views and op.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)


def bytes_at(value: Value, values: Mapping[str, int]) -> int:
    """Return the bytes of a tensor at these values of symbols, an expanded dimension counted once."""
    spec = value.spec
    sizes = [integer_at(size, values) for size in spec.sizes]
    if spec.strides:
        sizes = [
            1 if type(stride) is int and stride == 0 else size for size, stride in zip(sizes, spec.strides, strict=True)
        ]
    return prod(sizes) * spec.dtype.itemsize


def integer_at(size: Any, values: Mapping[str, int]) -> int:
    """Return a size at these values of symbols."""
    if isinstance(size, int):
        return int(size)
    term: Term = size if isinstance(size, Term) else size.term
    return int(fold.evaluate(term, values))
