"""What rules of data-dependent ops get to make unbacked symbols with."""

from __future__ import annotations

from typing import Any

from guards.terms import boolean
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.float_node import FloatNode
from symshape.tracing.symbolic.nodes.int_node import IntNode


class Unknowns:
    """The context that data-dependent rules get: makes unbacked symbols and remembers them for binding.

    Attributes:
        made: the unbacked integers, in order.
    """

    def __init__(self, env: ShapeEnv, op: str) -> None:
        self.env = env
        self.op = op
        self.made: list[IntNode] = []

    def new_size(self, lower: Any, upper: Any) -> IntNode:
        """A size of a result, between two sizes."""
        return self._new(lower, upper, f"a size of the result of {self.op}")

    def new_int(self, lower: Any, upper: Any) -> IntNode:
        """An integer read from a tensor."""
        return self._new(lower, upper, f"the integer read by {self.op}")

    def new_float(self) -> FloatNode:
        """A float read from a tensor."""
        return self.env.new_float()

    def new_bool(self) -> BoolNode:
        """A bool read from a tensor."""
        node = self._new(0, 1, f"the bool read by {self.op} (1 for True)")
        return BoolNode(self.env, boolean.eq(node.term, 1))

    def _new(self, lower: Any, upper: Any, description: str) -> IntNode:
        node = self.env.new_unbacked(lower, upper, description=description)
        self.made.append(node)
        return node
