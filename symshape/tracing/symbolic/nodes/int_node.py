"""The node inside ``torch.SymInt``: a symbolic size, which is also the number that shape rules
compute with.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from guards.terms import arithmetic, boolean, division
from guards.terms.term import Op, Term
from meta_fns.core import layout
from symshape.graph.float_terms import FloatTerm, float_term
from symshape.tracing.symbolic.nodes import choices
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.environment import Environment
from symshape.tracing.symbolic.nodes.node import Node

# -- The operators of sizes, each as torch calls it (on two nodes) and as Python does (``s + 1``,
# ``1 + s``).
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


def _bitwise(function: Callable[[int, int], int]) -> Method:
    """Return the SymNode method of an operation on bits, for which guards fix both operands."""
    return lambda self, other: self.env.nodes.int_node(
        arithmetic.const(function(self.int_(), other.int_()))
    )


class IntNode(Node):
    """The integer term of one environment; there is at most one node for each term, so ``is``
    compares.
    """

    __slots__ = ("_at_least_one", "_symint")
    term: Term
    scalar_type = int

    def __init__(self, env: Environment, term: Term) -> None:
        self.env = env
        self.term = term
        self._symint: torch.SymInt | None = None
        self._at_least_one: Any = None

    __hash__ = object.__hash__

    # -- as a size
    add, __add__, __radd__ = arithmetic_operators(arithmetic.add)
    sub, __sub__, __rsub__ = arithmetic_operators(arithmetic.sub)
    mul, __mul__, __rmul__ = arithmetic_operators(arithmetic.mul)
    int_floordiv, __floordiv__, __rfloordiv__ = division_operators(division.floordiv)
    floordiv = int_floordiv
    mod, __mod__, __rmod__ = division_operators(division.mod)
    eq, __eq__ = relation_operators(boolean.eq)
    ne, __ne__ = relation_operators(boolean.ne)
    lt, __lt__ = relation_operators(boolean.lt)
    le, __le__ = relation_operators(boolean.le)
    gt, __gt__ = relation_operators(boolean.gt)
    ge, __ge__ = relation_operators(boolean.ge)

    def __neg__(self) -> Any:
        return self.env.nodes.size(arithmetic.scale(self.term, -1))

    def __pos__(self) -> IntNode:
        return self

    def __bool__(self) -> bool:
        return self.env.evaluate(boolean.not_(boolean.is_zero(self.term)))

    def __int__(self) -> int:
        return self.int_()

    __index__ = __int__

    def sym_max(self, other: Any) -> Any:
        """Return the ``max`` of this and another size, or (from torch) another node."""
        if type(other) is IntNode:
            return self.env.nodes.int_node(choices.maximum(self.env.known, self.term, other.term))
        if isinstance(other, Node) and other.is_float():
            return self.env.nodes.float_node(float_term("max", self._as_float(), other.term))
        term = lifted(self, other)
        assert term is not None, other
        return self.env.nodes.size(choices.maximum(self.env.known, self.term, term))

    def sym_min(self, other: Any) -> Any:
        """Return the ``min`` of this and another size, or (from torch) another node."""
        if type(other) is IntNode:
            return self.env.nodes.int_node(choices.minimum(self.env.known, self.term, other.term))
        if isinstance(other, Node) and other.is_float():
            return self.env.nodes.float_node(float_term("min", self._as_float(), other.term))
        term = lifted(self, other)
        assert term is not None, other
        return self.env.nodes.size(choices.minimum(self.env.known, self.term, term))

    def at_least_one(self) -> Any:
        """Return ``max(self, 1)``, the factor of a stride."""
        found = self._at_least_one
        if found is None:
            found = self._at_least_one = self.env.nodes.size(
                choices.maximum(self.env.known, self.term, arithmetic.ONE)
            )
        return found

    @property
    def symint(self) -> torch.SymInt:
        """This node inside a ``torch.SymInt``."""
        found = self._symint
        if found is None:
            found = self._symint = torch.SymInt(self)
        return found

    # -- as a SymNode
    def is_int(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return self.term.op is Op.CONST

    def is_symbolic(self) -> bool:
        return self.term.op is not Op.CONST

    def maybe_as_int(self) -> int | None:
        return self.term.value if self.term.op is Op.CONST else None

    @property
    def pytype(self) -> type:
        return int

    def int_(self) -> int:
        return self.env.specialize(self.term)

    _value = int_

    def guard_int(self, file: str = "", line: int = 0) -> int:
        return self.env.specialize(self.term)

    def guard_float(self, file: str = "", line: int = 0) -> float:
        return float(self.env.specialize(self.term))

    def neg(self) -> Any:
        return self.env.nodes.int_node(arithmetic.scale(self.term, -1))

    def pos(self) -> IntNode:
        return self

    def abs(self) -> Any:
        return self.env.nodes.int_node(
            choices.maximum(self.env.known, self.term, arithmetic.scale(self.term, -1))
        )

    def floor(self) -> IntNode:
        return self

    ceil = trunc = floor

    def round(self, ndigits: object = None) -> IntNode:
        return self

    def is_integer(self) -> BoolNode:
        return BoolNode(self.env, boolean.TRUE)

    def sym_sum(self, terms: Sequence[IntNode]) -> Any:
        return self.env.nodes.int_node(arithmetic.total(node.term for node in terms))

    def pow(self, other: IntNode) -> Any:
        return self.pow_by_natural(other)

    def pow_by_natural(self, other: IntNode) -> Any:
        exponent = self.env.specialize(other.term)
        if exponent < 0:
            raise ValueError(f"{self.term} ** {exponent}: a negative power of a size is no integer")
        return self.env.nodes.int_node(arithmetic.prod([self.term] * exponent))

    def _as_float(self) -> FloatTerm | float:
        return (
            float(self.term.value)
            if self.term.op is Op.CONST
            else FloatTerm("from_int", (self.term,))
        )

    def sym_float(self) -> Any:
        return self.env.nodes.float_node(self._as_float())

    def int_truediv(self, other: IntNode) -> Any:
        if other.term.op is not Op.CONST and self.env.evaluate(
            boolean.is_zero(other.term), ZeroDivisionError
        ):
            raise ZeroDivisionError(f"division by zero: {self.term} by {other.term}")
        return self.env.nodes.float_node(float_term("truediv", self.term, other.term))

    truediv = int_truediv

    def sym_ite(self, then: Any, otherwise: Any) -> Any:
        return BoolNode(self.env, boolean.not_(boolean.is_zero(self.term))).sym_ite(then, otherwise)

    sym_and = and_ = bitwise_and = _bitwise(operator.and_)
    sym_or = or_ = bitwise_or = _bitwise(operator.or_)
    bitwise_xor = _bitwise(operator.xor)

    def lshift(self, other: Any) -> Any:
        return self.env.nodes.int_node(arithmetic.scale(self.term, 1 << other.int_()))

    def rshift(self, other: Any) -> Any:
        return self.env.nodes.int_node(division.floordiv(self.term, 1 << other.int_()))

    def _contiguity(
        self, sizes: Any, strides: Any, order: Callable[[int], tuple[int, ...] | None]
    ) -> BoolNode:
        dims = order(len(sizes))
        return BoolNode(
            self.env, boolean.FALSE if dims is None else _contiguous(sizes, strides, dims)
        )

    def is_contiguous(self, sizes: Any, strides: Any) -> BoolNode:
        return self._contiguity(sizes, strides, lambda n: tuple(range(n)))

    def is_channels_last_contiguous_2d(self, sizes: Any, strides: Any) -> BoolNode:
        return self._contiguity(sizes, strides, lambda n: (0, 2, 3, 1) if n == 4 else None)

    def is_channels_last_contiguous_3d(self, sizes: Any, strides: Any) -> BoolNode:
        return self._contiguity(sizes, strides, lambda n: (0, 2, 3, 4, 1) if n == 5 else None)

    def is_channels_last_strides_2d(self, sizes: Any, strides: Any) -> Any:
        return self.wrap_bool(len(sizes) == 4 and layout.is_channels_last_strides(sizes, strides))

    def is_channels_last_strides_3d(self, sizes: Any, strides: Any) -> Any:
        return self.wrap_bool(len(sizes) == 5 and layout.is_channels_last_strides(sizes, strides))

    def is_non_overlapping_and_dense(self, sizes: Any, strides: Any) -> BoolNode:
        return self.is_contiguous(sizes, strides)

    is_non_overlapping_and_dense_indicator = is_non_overlapping_and_dense


def _contiguous(sizes: Any, strides: Any, order: tuple[int, ...]) -> Term:
    """Return the condition that ``strides`` are those of a dense tensor laid out in ``order``
    (outermost first).
    """
    terms = [_term(size) for size in sizes]
    expected, conditions = arithmetic.ONE, []
    for d in reversed(order):
        conditions.append(
            boolean.or_(boolean.eq(terms[d], 1), boolean.eq(_term(strides[d]), expected))
        )
        expected = arithmetic.mul(expected, terms[d])
    return boolean.or_(boolean.and_(*conditions), *(boolean.eq(term, 0) for term in terms))


def _term(size: Any) -> Term:
    if isinstance(size, IntNode):
        return size.term
    node = getattr(size, "node", None)
    return node.term if isinstance(node, IntNode) else arithmetic.const(int(size))
