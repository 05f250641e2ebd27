"""The maker of the nodes of one environment, with a cache of integer nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from guards.terms import boolean
from guards.terms.term import Op, Term
from symshape.graph.float_terms import FloatTerm
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.environment import Environment
from symshape.tracing.symbolic.nodes.float_node import FloatNode
from symshape.tracing.symbolic.nodes.int_node import IntNode


class NodeMaker:
    """The maker of the nodes, sizes and conditions of one environment."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._nodes: dict[Term, IntNode] = {}
        self._combined: dict[tuple[Any, Term, Term], Term] = {}

    def int_node(self, term: Term) -> IntNode:
        """Return the one node for ``term``."""
        found = self._nodes.get(term)
        if found is None:
            found = self._nodes[term] = IntNode(self._env, term)
        return found

    def bool_node(self, term: Term) -> BoolNode:
        """Return a node for a condition."""
        return BoolNode(self._env, term)

    def float_node(self, term: FloatTerm | float) -> FloatNode:
        """Return a node for a float."""
        return FloatNode(self._env, term)

    def size(self, term: Term) -> int | IntNode:
        """Return ``term`` as a size: an int if it is constant."""
        found = self._nodes.get(term)
        if found is not None and found.term.op is not Op.CONST:
            return found
        if term.op is Op.CONST:
            return term.value
        return self.int_node(term)

    def condition(self, term: Term) -> bool | BoolNode:
        """Return ``term`` as a condition: a bool if it is constant."""
        if term is boolean.TRUE:
            return True
        return False if term is boolean.FALSE else BoolNode(self._env, term)

    def combine(self, function: Callable[[Term, Term], Term], a: Term, b: Term) -> Term:
        """Return ``function(a, b)``, cached."""
        key = (function, a, b)
        found = self._combined.get(key)
        if found is None:
            found = self._combined[key] = function(a, b)
        return found
