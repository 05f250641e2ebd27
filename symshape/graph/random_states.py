"""States of random generators that attention answers, and that nobody draws from where nothing is dropped."""

from __future__ import annotations

from collections.abc import Iterable

from symshape.graph.steps import Node, Value, draws_random_numbers

__all__ = ["idle_random_states"]

_NAMES = frozenset({"philox_seed", "philox_offset", "rng_state", "unused"})


def idle_random_states(nodes: Iterable[Node]) -> frozenset[Value]:
    """The values among the results of these nodes that a backward takes and does not look at, wherever they lie.

    (On CUDA they lie on the CPU, but on the device where a graph is captured.)
    """
    found: list[Value] = []
    for node in nodes:
        schema = getattr(node.op, "_schema", None)  # what is no operator has none
        if schema is not None and "attention" in schema.name and not draws_random_numbers(node):
            pairs = zip(schema.returns, node.outputs, strict=False)
            found += [value for result, value in pairs if value is not None and result.name in _NAMES]
    return frozenset(found)
