"""Rounding of data-dependent numbers to integers: ``int(mask.sum() * 0.7)``, computed when the
graph runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch

from guards.terms import boolean
from symshape.graph.float_terms import FloatTerm
from symshape.tracing.symbolic.nodes.environment import Environment

aten = torch.ops.aten
_MOST = 2.0**62
_ROUNDINGS: dict[Any, Any] = {
    math.floor: aten.floor.default,
    math.ceil: aten.ceil.default,
    math.trunc: aten.trunc.default,
    round: aten.round.default,
}


class Number(Protocol):
    """The part of a float's node that is used here."""

    @property
    def env(self) -> Environment:
        """The node's environment."""

    @property
    def term(self) -> FloatTerm | float:
        """The node's formula."""


def rounded(number: Number, whole: Callable[[float], int]) -> Any:
    """Return an integer node that the graph computes; None if the number depends on sizes or float
    arguments alone.

    It is asserted that the number is finite and that an int64 holds it.
    """
    env, term = number.env, number.term
    if not isinstance(term, FloatTerm) or not term.unbacked() or env.data.is_argument(term):
        return None
    cpu = torch.device("cpu")
    value = aten.scalar_tensor.default(torch.SymFloat(number), dtype=torch.float64, device=cpu)
    found = _ROUNDINGS[whole](value)
    beyond = aten.scalar_tensor.default(-2 * _MOST, dtype=torch.float64, device=cpu)
    read: Any = torch.where(found.abs() <= _MOST, found, beyond).to(torch.int64).item()
    node = read.node
    fits = boolean.ge(node.term, -int(_MOST))
    env.expect_true(fits, "this number does not fit an integer of 64 bits")
    return node
