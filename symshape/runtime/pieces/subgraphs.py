"""The pieces of a graph as graphs: the inputs that each takes from earlier pieces, and the results
that it gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from guards.regions.elimination import eliminate
from guards.regions.satisfiability import components
from guards.sets.guard import Guard
from guards.terms import arithmetic, boolean
from guards.terms.term import Op
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.steps import (
    Assertion,
    Input,
    Lifted,
    Node,
    Step,
    Value,
    values_in,
    written_values,
)
from symshape.graph.symbol_names import names_in, names_of_spec, names_of_step
from symshape.runtime.pieces.partition import Piece
from symshape.torch_internals import pytree

__all__ = ["Subgraph", "fresh_constants", "subgraphs"]


@attrs.frozen(eq=False)
class Subgraph:
    """A piece as a graph.

    Attributes:
        graph: the graph, with ``takes`` as inputs and ``gives`` as results, in their order.
        takes: the tensors that it reads and does not make, without parameters, buffers and
            constants.
        names: the symbols whose values are needed before it runs: those of its steps, and of its
            tensors if it is recorded.
        gives: the tensors, and the symbols by name, that are needed after it.
        conditions: the conditions on ``names`` that hold when it runs.
        known: all conditions that hold when it runs, also on other symbols.
    """

    graph: Graph
    takes: tuple[Value, ...]
    names: tuple[str, ...]
    gives: tuple[Value | str, ...]
    conditions: tuple[Guard, ...] = ()
    known: tuple[Guard, ...] = ()


def fresh_constants(graph: Graph) -> tuple[Lifted, ...]:
    """Return the constants that are copied for each run, since they are written to or returned."""
    written = {id(value.storage) for node in graph.nodes for value in written_values(node)}
    written |= {id(value.storage) for value in values_in(graph.outputs)}
    return tuple(
        each for each in graph.lifted if each.constant and id(each.value.storage) in written
    )


def subgraphs(
    graph: Graph, pieces: Sequence[Piece], given: Iterable[str], conditions: Sequence[Guard]
) -> list[Subgraph]:
    """Return the pieces as graphs, and after them a graph without steps that makes the results of
    ``graph``.

    Args:
        graph: the graph.
        pieces: its pieces.
        given: the symbols that are known before it runs.
        conditions: the conditions that hold of known symbols; conditions that steps check are added
            after those steps.
    """
    fresh = {each.value for each in fresh_constants(graph)}
    fixed = {each.value: each for each in graph.lifted if each.value not in fresh}
    paths = {each.value: each.path for each in graph.inputs}
    held = list(_held(graph, pieces, set(given), conditions))
    made = [_subgraph((), graph.outputs, (), fixed, paths, graph.output_tree)]
    needed = {*made[0].takes, *made[0].names}
    for piece, holds in zip(reversed(pieces), reversed(held), strict=True):
        steps = tuple(graph.steps[number] for number in piece.numbers)
        gives = tuple(each for each in _makes(steps) if each in needed)
        found = _subgraph(steps, [_as_result(each, steps) for each in gives], gives, fixed, paths)
        if piece.recorded:
            found = _with_conditions(found, holds)
        made.append(found)
        needed.update(found.takes, found.names)
    return made[::-1]


def _held(
    graph: Graph, pieces: Sequence[Piece], known: set[str], conditions: Sequence[Guard]
) -> Iterator[list[Guard]]:
    """Yield for each piece the conditions that hold before it."""
    checked: list[Guard] = []
    for piece in pieces:
        yield [
            each
            for each in (*conditions, *checked)
            if {symbol.name for symbol in each.term.symbols} <= known
        ]
        for number in piece.numbers:
            step = graph.steps[number]
            if isinstance(step, Assertion):
                checked.append(step.guard)
            else:
                known.update(binding.symbol for binding in step.bindings)


def _with_conditions(subgraph: Subgraph, holds: Sequence[Guard]) -> Subgraph:
    """Return a recorded piece with its tensors' symbols, and all conditions on no other symbols.

    Conditions help proofs.  A piece that is padded without a condition is still right, also for
    sizes that violate it.
    """
    names = {*subgraph.names, *_names_of_tensors(subgraph.graph)}
    conditions = tuple(
        each for each in holds if {symbol.name for symbol in each.term.symbols} <= names
    )
    conditions += tuple(_implied(names, holds))
    return attrs.evolve(
        subgraph, names=tuple(sorted(names)), conditions=conditions, known=tuple(holds)
    )


def _implied(names: set[str], holds: Sequence[Guard]) -> Iterator[Guard]:
    """Yield what conditions on other symbols too imply for ``names``: two equal to a third are
    equal.

    Conditions that share no symbol are handled separately.  A group that mentions none of the names
    says nothing about them, since the conditions hold together in the call that was traced.
    """
    kept = {arithmetic.symbol(name) for name in names}
    others = [each.term for each in holds if each.term.symbols - kept]
    for group in components(others):
        rows = [others[index] for index in group]
        if any(row.symbols & kept for row in rows):
            found, _ = eliminate(rows, kept)
            parts = found.args if found.op is Op.AND else (found,)
            yield from (Guard(term) for term in parts if term is not boolean.TRUE)


def _names_of_tensors(graph: Graph) -> set[str]:
    values = [each.value for each in graph.inputs]
    values += [value for node in graph.nodes for value in node.outputs if value is not None]
    return set().union(*(names_of_spec(value.spec) for value in values))


def _makes(steps: Iterable[Step]) -> Iterable[Value | str]:
    for step in steps:
        if isinstance(step, Node):
            yield from (value for value in step.outputs if value is not None)
            yield from (binding.symbol for binding in step.bindings)


def _as_result(given: Value | str, steps: Sequence[Step]) -> Any:
    if isinstance(given, Value):
        return given
    kinds = {
        each.symbol: each.kind for step in steps if isinstance(step, Node) for each in step.bindings
    }
    return (
        FloatTerm("symbol", symbol=given) if kinds[given] == "float" else arithmetic.symbol(given)
    )


def _subgraph(
    steps: tuple[Step, ...],
    outputs: Sequence[Any],
    gives: tuple[Value | str, ...],
    fixed: dict[Value, Lifted],
    paths: dict[Value, str],
    tree: pytree.TreeSpec | None = None,
) -> Subgraph:
    made = set(_makes(steps))
    reads = [value for step in steps if isinstance(step, Node) for value in step.reads]
    read = dict.fromkeys(value for value in (*reads, *values_in(outputs)) if value not in made)
    takes = tuple(value for value in read if value not in fixed)
    lifted = tuple(fixed[value] for value in read if value in fixed)
    names = names_in(each for each in outputs if not isinstance(each, Value))
    for step in steps:
        names |= names_of_step(step)
    inputs = tuple(
        Input(place, paths.get(value, value.name), value) for place, value in enumerate(takes)
    )
    tree = pytree.tree_structure([0] * len(outputs)) if tree is None else tree
    graph = Graph(inputs, lifted, steps, tuple(outputs), tree)
    return Subgraph(graph, takes, tuple(sorted(names - made)), gives)
