"""The generator states that attention returns, from which its backward draws the same numbers again."""

from __future__ import annotations

from collections.abc import Iterable

from symshape.graph.steps import Node, Value, arguments_by_name, draws_random_numbers, drops

__all__ = ["idle_random_states", "keeps_random_state_on_host"]

_NAMES = frozenset({"philox_seed", "philox_offset", "rng_state", "unused"})


def idle_random_states(nodes: Iterable[Node]) -> frozenset[Value]:
    """Return the generator states among the results of attention nodes that drew nothing: no backward reads them.

    (On CUDA they are on the CPU, but on the device where a graph is captured.)
    """
    found: list[Value] = []
    for node in nodes:
        schema = getattr(node.op, "_schema", None)  # what is no operator has none
        if schema is not None and "attention" in schema.name and not draws_random_numbers(node):
            pairs = zip(schema.returns, node.outputs, strict=False)
            found += [value for result, value in pairs if value is not None and result.name in _NAMES]
    return frozenset(found)


def keeps_random_state_on_host(node: Node) -> bool:
    """Return whether a node's random state is on the CPU, unless the node is captured: then it is on the device.

    This holds for the memory-efficient kernel and its backward with dropout. One reads as a pointer what the other
    stored as a number, unless both are captured or neither is.
    """
    schema = getattr(node.op, "_schema", None)
    if schema is None or "efficient_attention" not in schema.name or not drops(node):
        return False
    return bool(arguments_by_name(node).get("compute_log_sumexp", "backward" in schema.name))
