"""Memory that is live while a graph runs step by step, as formulas: each storage from its first
value to its last use.

In the schedule ``graph`` a storage lives until the last read of a value that shares it, as in the
generated runner, which deletes values after their last use. In the schedule ``eager`` it lives as
long as the program's own variables held such a value while it was traced, as in Python. Arguments,
parameters and results live to the end (and arguments from the start). The workspace of a kernel is
not counted.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence

import attrs

from guards.terms import arithmetic
from guards.terms.term import Term
from meta_fns.core.cost_rule import elements
from symshape.cost.op_costs import as_terms
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Value, values_in, written_values

PARTS = ("parameters", "inputs", "activations", "outputs", "gradients", "optimizer")
"""The purposes of memory: parameters and other lifted tensors, arguments, intermediate values,
results.

In training also the gradients of parameters, and the state and workspace of the optimizer.
"""

PARAMETERS, INPUTS, ACTIVATIONS, OUTPUTS, GRADIENTS, OPTIMIZER = range(len(PARTS))

SCHEDULES = ("graph", "eager")
"""The owner of a tensor's lifetime: the runner of the graph, or the variables of the program."""

Rounded = Callable[[Term], Term]


@attrs.frozen(eq=False)
class Moment:
    """A point in time: the node that runs, and the live bytes of each of :data:`PARTS`.

    Attributes:
        node: the node that runs; None before the first one.
        parts: live bytes, in the order of ``PARTS``.
        place: what runs, where that is no node.
    """

    node: Node | None
    parts: tuple[Term, ...]
    place: str = ""

    @property
    def total(self) -> Term:
        """All live bytes."""
        return arithmetic.total(self.parts)

    def plus(self, part: int, size: Term | int) -> Moment:
        """Return the same moment with further bytes of one of ``PARTS``."""
        parts = (*self.parts[:part], self.parts[part] + size, *self.parts[part + 1 :])
        return attrs.evolve(self, parts=parts)


def exact(size: Term) -> Term:
    """Return bytes unchanged."""
    return size


def rounded_up(multiple: int) -> Rounded:
    """Return the rounding of an allocator that hands out multiples of ``multiple`` bytes."""

    def rounded(size: Term) -> Term:
        return (size + (multiple - 1)) // multiple * multiple

    return rounded


@attrs.define(eq=False)
class Storage:
    """One allocation.

    Attributes:
        part: its purpose, as an index of ``PARTS``.
        size: its bytes.
        born: the index of the node that makes it; -1 for what is there from the start.
        last: the index of the last node that it lives through; the number of nodes for what lives
            to the end.
    """

    part: int
    size: Term
    born: int
    last: int


def moments(
    graph: Graph,
    rounded: Rounded = exact,
    schedule: str = "graph",
    gradients: Iterable[Value] = (),
    *,
    accumulated: bool = False,
) -> tuple[Moment, ...]:
    """Return the live bytes while each node runs, in order; the first moment is before any runs.

    ``gradients`` are those of the results that are gradients; if they are ``accumulated``, each is
    added to one that is there already (and not counted here) as soon as it is made, and let go.
    """
    nodes = graph.nodes
    storages = storages_of(graph, rounded, schedule, gradients, accumulated=accumulated)
    changes: list[list[tuple[int, Term, int]]] = [[] for _ in range(len(nodes) + 2)]
    for storage in storages:
        changes[storage.born + 1].append((storage.part, storage.size, 1))
        changes[storage.last + 2 if storage.last < len(nodes) else -1].append(
            (storage.part, storage.size, -1)
        )
    live = [arithmetic.ZERO] * len(PARTS)
    found: list[Moment] = []
    for index in range(len(nodes) + 1):
        for part, size, sign in changes[index]:
            live[part] = live[part] + size if sign > 0 else live[part] - size
        found.append(Moment(nodes[index - 1] if index else None, tuple(live)))
    return tuple(found)


def storages_of(
    graph: Graph,
    rounded: Rounded = exact,
    schedule: str = "graph",
    gradients: Iterable[Value] = (),
    *,
    accumulated: bool = False,
) -> list[Storage]:
    """Return every allocation of a run, in the order in which they are made; arguments as for
    :func:`moments`.
    """
    roots = {_root(value) for value in gradients}
    return _storages(graph, graph.nodes, rounded, schedule == "eager", roots, accumulated)


def _storages(
    graph: Graph,
    nodes: Sequence[Node],
    rounded: Rounded,
    held: bool,
    gradients: set[int],
    accumulated: bool,
) -> list[Storage]:
    """Return every allocation of a run; nodes are counted from 0, and the end is after the last.

    ``held``: whether what the program held lives on.
    """
    end = len(nodes)
    made = _made(nodes) if held else []
    returned = {_root(value) for value in values_in(graph.outputs)}
    passing = gradients if accumulated else frozenset[int]()
    found = _from_the_start(graph, rounded, end, returned)
    for index, node in enumerate(nodes):
        for value in (*values_in(node.args), *values_in(node.kwargs)):
            storage = found[_root(value)]
            storage.last = max(storage.last, index)
        for output in node.outputs:
            if output is None:
                continue
            key = _root(output)
            if key not in found:
                kept = key in returned and key not in passing
                part = GRADIENTS if key in gradients else OUTPUTS if kept else ACTIVATIONS
                found[key] = Storage(
                    part, rounded(storage_bytes(output)), index, end if kept else index
                )
            last = index
            if held and output.held_until is not None and key not in passing:
                last = min(bisect.bisect_right(made, output.held_until) - 1, end)
            found[key].last = max(found[key].last, last)
    return list(found.values())


def _from_the_start(
    graph: Graph, rounded: Rounded, end: int, returned: set[int]
) -> dict[int, Storage]:
    """Return the parameters and arguments, and the copies of constants with which each run
    starts.
    """
    found: dict[int, Storage] = {}
    written = {_root(value) for node in graph.nodes for value in written_values(node)}
    for lifted in graph.lifted:
        key = _root(lifted.value)
        size = rounded(arithmetic.const(lifted.tensor.untyped_storage().nbytes()))
        found.setdefault(key, Storage(PARAMETERS, size, -1, end))
        if lifted.constant and (key in written or key in returned):
            found[-key] = Storage(OUTPUTS if key in returned else ACTIVATIONS, size, -1, end)
    for each in graph.inputs:
        found.setdefault(
            _root(each.value), Storage(INPUTS, rounded(storage_bytes(each.value)), -1, end)
        )
    return found


def _root(value: Value) -> int:
    """Return the identity of a value's storage: values that share memory have the same."""
    return id(value.storage)


def _made(nodes: Sequence[Node]) -> list[int]:
    """Return for each node the index of the last value made by then, in ascending order."""
    found: list[int] = []
    for node in nodes:
        indices = [output.index for output in node.outputs if output is not None]
        found.append(max([*indices, found[-1] if found else -1]))
    return found


def storage_bytes(value: Value) -> Term:
    """Return the bytes of a storage that begins with this value: its elements, an expanded
    dimension counted once.
    """
    spec = as_terms(value.spec)
    return arithmetic.integer(elements(spec)) * spec.dtype.itemsize
