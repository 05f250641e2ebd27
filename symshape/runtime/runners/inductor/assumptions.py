"""The assumptions that torch's ShapeEnv made during a compilation, as conditions on the integers of
a call.

Conditions are texts in integer arithmetic.  Inductor also compares true quotients of sizes with
floats (for example whether padding a matrix product pays); such a comparison is replaced by an
integer condition that implies it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

__all__ = ["assumptions"]

_FARTHEST = 2**62  # bounds are clamped to this magnitude


def assumptions(
    shape_env: Any, symbols: Mapping[str, str], fixed: Mapping[str, int]
) -> tuple[str, ...] | None:
    """Return torch's ShapeEnv's records as conditions on slots; None (exact sizes only) if they are
    unreadable.

    Args:
        shape_env: the compilation's ShapeEnv.
        symbols: the slot of each of torch's symbols.
        fixed: slots that are constants to torch, with their values.
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
        conditions += [
            _renamed(f"{symbol} == {value}", symbols)
            for symbol, value in shape_env.replacements.items()
        ]
    except (KeyError, OverflowError, TypeError):
        return None
    return tuple(conditions)


def _in_whole_numbers(condition: Any) -> Iterator[str]:
    """Yield a SymPy condition as texts; for a true quotient compared with a float, conditions that
    imply it.
    """
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
"""The exact inequality that implies an inequality of a rounded quotient, and the float to compare
with.

Rounding to the nearest float is monotonic: a quotient that is at least a float is not rounded to
less than that float.
"""


def _renamed(text: str, symbols: Mapping[str, str]) -> str:
    """Return a condition on torch's symbols with slots instead.

    Raises:
        KeyError: a symbol belongs to no argument.
    """

    def slot(match: re.Match[str]) -> str:
        word = match[0]
        return symbols[word] if re.fullmatch(r"[sz]\d+", word) else word

    return re.sub(r"[A-Za-z_]\w*", slot, text)
