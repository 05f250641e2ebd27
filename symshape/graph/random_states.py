"""States of random generators that attention answers for its backward, which draws the same numbers from them again."""

from __future__ import annotations

from collections.abc import Iterable

from symshape.graph.steps import Node, Value, arguments_by_name, draws_random_numbers, drops

__all__ = ["idle_random_states", "keeps_random_state_on_host"]

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


def keeps_random_state_on_host(node: Node) -> bool:
    """Whether a node's random state lies on the CPU, but on the device where the node is captured.

    The memory-efficient kernel and its backward, where they drop something: one reads as a pointer what the other left
    as a number, unless both are captured or neither is.
    """
    schema = getattr(node.op, "_schema", None)
    if schema is None or "efficient_attention" not in schema.name or not drops(node):
        return False
    return bool(arguments_by_name(node).get("compute_log_sumexp", "backward" in schema.name))
