"""The operators of sizes, each as torch calls it (on two nodes) and as Python does (``s + 1``,
``1 + s``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from guards.terms import arithmetic, boolean
from guards.terms.term import Op, Term
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.environment import Environment
from symshape.tracing.symbolic.nodes.node import Node

Operation = Callable[[Term, Term], Term]
Method = Callable[..., Any]
Operators = tuple[Method, Method, Method]


def lifted(node: Node, other: Any) -> Term | None:
    """Return the other operand of an int node's operator as an integer term, or None if it is
    none.
    """
    if type(other) is type(node):
        term: Term = other.term
        return term
    if type(other) is int:
        return arithmetic.const(other)
    if isinstance(other, torch.SymInt):
        return other.node.term if type(other.node) is type(node) else arithmetic.const(int(other))
    if isinstance(other, bool):
        return arithmetic.const(int(other))
    if type(other) is BoolNode:
        return boolean.ite(other.term, 1, 0)
    return None


def integer_of(node: Node) -> Term:
    """Return the integer term of an operand that torch passes: a condition is 1 if it holds, else
    0.
    """
    return boolean.ite(node.term, 1, 0) if type(node) is BoolNode else node.term


def arithmetic_operators(function: Operation) -> Operators:
    """Return a SymNode method, a Python operator and its reflection for an operation that is always
    defined.
    """

    def node_method(self: Node, other: Node) -> Any:
        nodes = self.env.nodes
        return nodes.int_node(nodes.combine(function, self.term, integer_of(other)))

    def size_operator(self: Node, other: Any) -> Any:
        term = lifted(self, other)
        if term is None:
            return NotImplemented
        nodes = self.env.nodes
        return nodes.size(nodes.combine(function, self.term, term))

    def reflected(self: Node, other: Any) -> Any:
        term = lifted(self, other)
        if term is None:
            return NotImplemented
        nodes = self.env.nodes
        return nodes.size(nodes.combine(function, term, self.term))

    return node_method, size_operator, reflected


def relation_operators(function: Operation) -> tuple[Method, Method]:
    """Return a SymNode method and a Python operator for a comparison."""

    def node_method(self: Node, other: Node) -> Any:
        return BoolNode(self.env, self.env.nodes.combine(function, self.term, integer_of(other)))

    def size_operator(self: Node, other: Any) -> Any:
        term = lifted(self, other)
        if term is None:
            return NotImplemented
        nodes = self.env.nodes
        return nodes.condition(nodes.combine(function, self.term, term))

    return node_method, size_operator


def division_operators(function: Operation) -> Operators:
    """Return the three methods of ``//`` or ``%``; a guard or assertion decides whether a divisor
    is 0, and raises.
    """

    def divide(env: Environment, a: Term, b: Term) -> Term:
        if b.op is not Op.CONST and env.evaluate(boolean.is_zero(b), ZeroDivisionError):
            raise ZeroDivisionError(f"integer division or modulo by zero: {a} by {b}")
        return env.nodes.combine(function, a, b)

    def node_method(self: Node, other: Node) -> Any:
        return self.env.nodes.int_node(divide(self.env, self.term, integer_of(other)))

    def size_operator(self: Node, other: Any) -> Any:
        term = lifted(self, other)
        return (
            NotImplemented
            if term is None
            else self.env.nodes.size(divide(self.env, self.term, term))
        )

    def reflected(self: Node, other: Any) -> Any:
        term = lifted(self, other)
        return (
            NotImplemented
            if term is None
            else self.env.nodes.size(divide(self.env, term, self.term))
        )

    return node_method, size_operator, reflected
