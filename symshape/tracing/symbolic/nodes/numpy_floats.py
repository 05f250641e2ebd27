"""Symbolic floats that stand for NumPy's: functions that make them, and their conversion to
Python's floats.
"""

from __future__ import annotations

from typing import Any

from symshape.graph.float_terms import FloatTerm, float_term
from symshape.tracing.symbolic.nodes.environment import Environment
from symshape.tracing.symbolic.nodes.float_node import FloatNode


def of_numpy(node: Any) -> bool:
    """Return whether a node is a NumPy float."""
    return isinstance(node.term, FloatTerm) and node.term.of_numpy()


def constant(env: Environment, number: float) -> FloatNode:
    """Return a plain number as a NumPy float, so that results computed with it are NumPy's."""
    return FloatNode(env, FloatTerm("np_float", (float(number),)))


def computed(node: FloatNode, function: str) -> FloatNode:
    """Return the result of a NumPy function of a float; ``float`` converts it to a NumPy float."""
    term = FloatTerm(f"np_{function}", (node.term,))
    node.env.partial.add(term)
    return FloatNode(node.env, term)


def of_python(node: FloatNode) -> FloatNode:
    """Return the float converted to Python's class."""
    return FloatNode(node.env, float_term("as_float", node.term)) if of_numpy(node) else node
