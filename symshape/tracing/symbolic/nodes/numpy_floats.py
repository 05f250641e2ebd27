"""Symbolic floats that stand for NumPy's: what they are made by, and how they become Python's."""

from __future__ import annotations

from typing import Any

from symshape.graph.float_terms import FloatTerm, float_term
from symshape.tracing.symbolic.nodes.environment import Environment
from symshape.tracing.symbolic.nodes.float_node import FloatNode


def of_numpy(node: Any) -> bool:
    """Whether a node is a float of NumPy's."""
    return isinstance(node.term, FloatTerm) and node.term.of_numpy()


def constant(env: Environment, number: float) -> FloatNode:
    """A plain float of NumPy's, so that what is computed with it is of NumPy's."""
    return FloatNode(env, FloatTerm("np_float", (float(number),)))


def computed(node: FloatNode, function: str) -> FloatNode:
    """What a function of NumPy's makes of a float; ``float`` makes it one of NumPy's."""
    term = FloatTerm(f"np_{function}", (node.term,))
    node.env.partial.add(term)
    return FloatNode(node.env, term)


def of_python(node: FloatNode) -> FloatNode:
    """The float itself, of Python's class."""
    return FloatNode(node.env, float_term("as_float", node.term)) if of_numpy(node) else node
