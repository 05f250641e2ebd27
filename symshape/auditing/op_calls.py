"""What the rules read of a step: the name of its op, and the value that it makes or writes."""

from __future__ import annotations

from symshape.graph.steps import Node, Value

__all__ = ["name_of_op", "target_of"]


def name_of_op(node: Node) -> str:
    """The name of an op without namespace, overload and the underscore of an in-place variant."""
    name = str(node.op._schema.name).partition("::")[2]
    return name[:-1] if name.endswith("_") and not name.startswith("__") else name


def target_of(node: Node) -> Value:
    """The first output of a step, or its first argument where the op returns nothing new."""
    found = next((each for each in node.outputs if each is not None), None)
    return found if found is not None else node.reads[0]
