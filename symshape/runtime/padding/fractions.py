"""Floating-point numbers of sizes, computed in a padded program in float64, as Python computes
them.
"""

from __future__ import annotations

from typing import Any

import torch

from guards.terms import boolean
from guards.terms.term import Term
from meta_fns.padding.padded import Emitter
from meta_fns.padding.refusals import Refuse
from symshape.graph.float_terms import FloatTerm, Operand
from symshape.graph.steps import Value
from symshape.runtime.padding.region import Fraction

__all__ = ["fraction"]

_aten = torch.ops.aten
_OPS = {
    **{
        name: getattr(_aten, name).default
        for name in ("neg", "abs", "sqrt", "cos", "sin", "exp", "tanh", "atan")
    },
    **{name: getattr(_aten, name).default for name in ("log", "log2", "log10")},
    **{name: getattr(_aten, name).Tensor for name in ("add", "sub", "mul")},
    "truediv": _aten.div.Tensor,
    "pow": _aten.pow.Tensor_Tensor,
    "max": _aten.maximum.default,
    "min": _aten.minimum.default,
}
_OF_POSITIVE = frozenset(("log", "log2", "log10"))
_KEEPING = frozenset(("from_int", "as_float"))


def fraction(emit: Emitter, number: Fraction, device: torch.device) -> Value:
    """Return the number as a 0-d float64 tensor.

    Raises:
        Refuse: Python raises for some sizes (a division by zero, the logarithm of zero), or the
            number has an unsupported function.
    """
    made: Value = _Computed(emit, number, device).of(number.formula)
    return made


class _Computed:
    """One number under construction."""

    def __init__(self, emit: Emitter, number: Fraction, device: torch.device) -> None:
        self._emit = emit
        self._number = number
        self._device = device

    def of(self, operand: Operand) -> Any:
        """Return a part of the number as a tensor."""
        if isinstance(operand, Term):
            size = self._emit.size(self._number.region.amount(operand))
            return self._emit.call(_aten._to_copy.default, size, dtype=torch.float64)
        if not isinstance(operand, FloatTerm):
            return self._emit.call(
                _aten.scalar_tensor.default, operand, dtype=torch.float64, device=self._device
            )
        if operand.op in _KEEPING:
            return self.of(operand.args[0])
        if operand.op not in _OPS:
            raise Refuse(f"a fraction of sizes by {operand.op}", self._number)
        self._check(operand)
        return self._emit.call(_OPS[operand.op], *map(self.of, operand.args))

    def _check(self, term: FloatTerm) -> None:
        """Check that Python does not raise for this term, and returns the same number as torch.

        Raises:
            Refuse: it may not hold for some sizes.
        """
        name, args = term.op, term.args
        fine = True
        if name == "truediv":
            fine = self._least(args[1]) > 0
        elif name in _OF_POSITIVE or name == "pow":
            fine = self._least(args[0]) > 0
        elif name == "sqrt":
            fine = self._least(args[0]) >= 0
        if not fine:
            remedy = "torch._check that the sizes are at least 1, or max(size, 1)"
            raise Refuse(f"{term} has no value for some sizes", self._number, remedy=remedy)

    def _least(self, operand: Operand) -> float:
        """Return a rough lower bound of a part of the number: 1 for positive, 0 for non-negative,
        -1 for unknown.
        """
        if isinstance(operand, Term):
            known = self._number.region.known_of_calls
            return (
                1 if known(boolean.ge(operand, 1)) else 0 if known(boolean.ge(operand, 0)) else -1
            )
        if not isinstance(operand, FloatTerm):
            return 1 if operand > 0 else 0 if operand == 0 else -1
        least = [self._least(each) for each in operand.args]
        if operand.op in ("add", "max"):
            above = max(least)
            return above if operand.op == "max" or min(least) >= 0 else -1
        if operand.op in ("mul", "truediv", "min", "sqrt", "as_float", "from_int"):
            return min(least)
        return 1 if operand.op == "pow" and least[0] > 0 else -1
