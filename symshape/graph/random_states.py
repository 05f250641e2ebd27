"""The generator states that attention returns, from which its backward draws the same numbers
again.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import attrs

from symshape.graph.graph import Graph
from symshape.graph.steps import (
    Node,
    Value,
    arguments_by_name,
    draws_random_numbers,
    drops,
    values_in,
)

__all__ = ["RandomStates", "keeps_random_state_on_host", "states_of"]

_NAMES = frozenset({"philox_seed", "philox_offset", "rng_state", "unused"})


@attrs.frozen
class RandomStates:
    """The random states of the attention in a graph.

    Forward and backward drop the same elements if both are in one recorded graph, padded or not.
    If one of them is elsewhere, the state has to be that of eager's kernel at eager's sizes; and
    the memory-efficient kernel reads as a pointer what it stored as a number, unless both are
    captured or neither is.

    Attributes:
        inside: the states that no other graph reads: only backward passes in this graph do, or
            nothing.  Eager keeps some of them on the CPU, and a captured graph keeps them on the
            device.
        shared: the attention with dropout whose state is given to the graph, or read outside of it;
            none in a tied graph.
        pairs: attention with dropout, and a backward that reads its state.
        dropping: the states of attention with dropout.
    """

    inside: frozenset[Value] = frozenset()
    shared: frozenset[Node] = frozenset()
    pairs: tuple[tuple[Node, Node], ...] = ()
    dropping: frozenset[Value] = frozenset()

    @staticmethod
    def of(graph: Graph) -> RandomStates:
        """Return the random states of a graph; found once."""
        found = _known.get(graph)
        if found is None:
            found = _known[graph] = _found(graph)
        return found


_known: weakref.WeakKeyDictionary[Graph, RandomStates] = weakref.WeakKeyDictionary()


def keeps_random_state_on_host(node: Node) -> bool:
    """Return whether a node's random state is on the CPU, unless the node is captured: then it is
    on the device.
    """
    return "efficient_attention" in getattr(getattr(node.op, "_schema", None), "name", "")


def _found(graph: Graph) -> RandomStates:
    """Return the random states of a graph, by walking over its nodes once."""
    attention = [
        node
        for node in graph.nodes
        if "attention" in getattr(getattr(node.op, "_schema", None), "name", "")
    ]
    if not attention:
        return RandomStates()
    made = {value: node for node in attention for value in _results(node)}
    drawn = {value for value, node in made.items() if draws_random_numbers(node)}
    seen = set(values_in(graph.outputs))
    for node in graph.nodes:
        if not drawn.isdisjoint(node.reads):
            states = {*_arguments(node)} if node in attention else set()
            seen |= drawn.intersection(node.reads) - states
    inside = made.keys() - (drawn & seen)
    drop = [node for node in attention if drops(node)]
    own = {node: frozenset(states_of(node)) for node in drop}
    shared = {node for node in drop if not (graph.tied or inside >= own[node])}
    pairs = {(made[value], node) for node in drop for value in _arguments(node) if value in made}
    dropping = frozenset[Value]().union(*own.values())
    return RandomStates(frozenset(inside), frozenset(shared), tuple(pairs), dropping)


def states_of(node: Node) -> Iterator[Value]:
    """Yield the random states that a node is given, and those that it returns."""
    yield from _arguments(node)
    yield from _results(node)


def _results(node: Node) -> Iterator[Value]:
    """Yield the random states among a node's results."""
    for result, value in zip(node.op._schema.returns, node.outputs, strict=False):
        if value is not None and result.name in _NAMES:
            yield value


def _arguments(node: Node) -> Iterator[Value]:
    """Yield the random states among a node's arguments."""
    given: dict[str, Any] = arguments_by_name(node)
    yield from (
        value for name, value in given.items() if name in _NAMES and isinstance(value, Value)
    )
