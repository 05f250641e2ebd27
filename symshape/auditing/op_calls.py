"""The op name and the result of a step, as rules read them."""

from __future__ import annotations

from symshape.graph.steps import Node, Value

__all__ = ["name_of_op", "target_of"]


def name_of_op(node: Node) -> str:
    """Return the name of an op without namespace, overload and the underscore of an in-place
    variant.
    """
    name = str(node.op._schema.name).partition("::")[2]
    return name[:-1] if name.endswith("_") and not name.startswith("__") else name


def target_of(node: Node) -> Value:
    """Return the first output of a step, or its first argument if the op returns nothing new."""
    found = next((each for each in node.outputs if each is not None), None)
    return found if found is not None else node.reads[0]
