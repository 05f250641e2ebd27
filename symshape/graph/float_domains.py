"""Domains of the functions of ``math`` on floats: ``math.log10(0)``, ``math.exp(1000)`` and
``1 / 0.0`` raise.

A program that computes such a number raises there, whether or not it uses the number.
"""

from __future__ import annotations

import math
import sys

import attrs

from symshape.graph.float_terms import CPP, OF_ONE, OF_TWO, FloatTerm, Operand

_LARGEST = sys.float_info.max
_MOST = 709.0
"""The largest exponent that is known not to overflow: a little below the logarithm of the largest
float.

The margin makes the bound independent of how the platform rounds.
"""


@attrs.frozen
class Need:
    """A requirement on an operand: ``operand relation constant``, with ``lt``, ``le``, ``gt``,
    ``ge`` or ``ne``.
    """

    operand: Operand
    relation: str
    constant: float


def needs(term: FloatTerm) -> tuple[Need, ...] | None:
    """Return requirements under which an operation raises nothing; None if none are known.

    They may be stricter than necessary.

    >>> from guards.terms.arithmetic import symbol
    >>> from symshape.graph.float_terms import float_term
    >>> for each in needs(float_term("log", float_term("from_int", symbol("n")))):
    ...     print(each.operand, each.relation, each.constant)
    float(n) gt 0.0
    """
    if term.op in ("truediv", "mod"):
        return _holding(Need(term.args[1], "ne", 0.0))
    if term.op in _NEEDS:
        return _holding(*(Need(term.args[0], *each) for each in _NEEDS[term.op]))
    if term.op in CPP:
        return ()
    if term.op in (*OF_ONE, *OF_TWO):
        return () if term.op in _NEVER_RAISING else None
    return _of_power(*term.args) if term.op in ("pow", "np_pow") else ()


_NEVER_RAISING = ("asinh", "erf", "erfc", "cbrt", "radians", "atan2", "copysign")
_FINITE = (("ge", -_LARGEST), ("le", _LARGEST))
_NEEDS: dict[str, tuple[tuple[str, float], ...]] = {
    "sqrt": (("ge", 0.0),),
    **dict.fromkeys(("log", "log2", "log10"), (("gt", 0.0),)),
    "log1p": (("gt", -1.0),),
    **dict.fromkeys(("exp", "expm1"), (("le", _MOST),)),
    **dict.fromkeys(("sin", "cos"), _FINITE),
}


def _of_power(base: Operand, exponent: Operand) -> tuple[Need, ...] | None:
    if isinstance(exponent, (int, float)) and math.isfinite(exponent):
        # of a base below all normal floats it may be too large, whatever the exponent
        if exponent < 0:
            return (Need(base, "ge", math.exp(max(_MOST / exponent, 1 - _MOST))),)
        whole, most = float(exponent).is_integer(), _MOST / exponent if exponent else math.inf
        bound = math.exp(most) if most < _MOST else None  # None: no base is too large
        if bound is None:
            return () if whole else (Need(base, "ge", 0.0),)
        return Need(base, "ge", -bound if whole else 0.0), Need(base, "le", bound)
    if isinstance(base, (int, float)) and 0 < base < math.inf:
        slope = math.log(base)
        return (Need(exponent, "le" if slope > 0 else "ge", _MOST / slope),) if slope else ()
    return None


def _holding(*found: Need) -> tuple[Need, ...]:
    """Return the requirements on operands that are no constants."""
    return tuple(each for each in found if not isinstance(each.operand, (int, float)))
