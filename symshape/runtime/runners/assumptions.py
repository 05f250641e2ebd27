"""What torch's ShapeEnv assumed while a graph was compiled, as conditions on the integers of a call.

Conditions are texts in whole numbers.  Inductor also compares true quotients of sizes with floats (whether padding a
matrix product pays, say); what is written down for those implies them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

__all__ = ["assumptions"]

_FARTHEST = 2**62  # beyond, a bound is none


def assumptions(shape_env: Any, symbols: Mapping[str, str], fixed: Mapping[str, int]) -> tuple[str, ...] | None:
    """What torch's ShapeEnv recorded, as conditions on our slots; None (exact sizes only) where it is unreadable.

    Args:
        shape_env: of the compilation.
        symbols: the slot that each of torch's symbols stands for.
        fixed: slots that are constants to torch.
    """
    conditions = [f"{name} == {value}" for name, value in fixed.items()]
    try:
        for guard in shape_env.guards:
            conditions += [_renamed(each, symbols) for each in _in_whole_numbers(guard.expr)]
        for symbol, bounds in shape_env.var_to_range.items():
            name = symbols.get(str(symbol))
            if name is None:
                continue
            low, high = int(max(bounds.lower, -_FARTHEST)), int(min(bounds.upper, _FARTHEST))
            conditions += [f"{low} <= {name}", f"{name} <= {high}"]
        if shape_env.replacements and any(str(s) not in symbols for s in shape_env.replacements):
            return None
        conditions += [_renamed(f"{symbol} == {value}", symbols) for symbol, value in shape_env.replacements.items()]
    except (KeyError, OverflowError, TypeError):
        return None
    return tuple(conditions)


def _in_whole_numbers(condition: Any) -> Iterator[str]:
    """A condition of SymPy's as texts; one that compares a true quotient with a float as what implies it."""
    if getattr(condition, "rel_op", None) not in _NEAREST:
        yield str(condition)
        return
    told = condition.reversed if condition.lhs.is_number else condition
    bound = told.rhs
    if told.lhs.func.__name__ != "IntTrueDiv" or not bound.is_number:
        yield str(condition)
        return
    above, below = told.lhs.args
    sign, nearest = _NEAREST[told.rel_op]
    limit = Fraction(nearest(float(bound)))
    yield f"({below}) > 0"
    yield f"({above})*{limit.denominator} {sign} ({below})*{limit.numerator}"


_NEAREST = {
    ">": (">=", lambda bound: math.nextafter(bound, math.inf)),
    ">=": (">=", lambda bound: bound),
    "<": ("<=", lambda bound: math.nextafter(bound, -math.inf)),
    "<=": ("<=", lambda bound: bound),
}
"""For an inequality of a quotient rounded to a float: the exact one that implies it, and its float.

Rounding to the nearest float never leads past a float: a quotient that is not below one is not rounded to below it.
"""


def _renamed(text: str, symbols: Mapping[str, str]) -> str:
    """A condition on torch's symbols, on slots instead.  Raises KeyError for a symbol that is no argument's."""

    def slot(match: re.Match[str]) -> str:
        word = match[0]
        return symbols[word] if re.fullmatch(r"[sz]\d+", word) else word

    return re.sub(r"[A-Za-z_]\w*", slot, text)
