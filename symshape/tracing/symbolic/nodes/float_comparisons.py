"""Comparisons of floats that are computed from sizes, as conditions on the sizes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from guards.terms import arithmetic, boolean
from guards.terms.term import Term
from symshape.graph.float_rounding import LARGEST, Monotone, monotone
from symshape.graph.float_terms import FloatTerm
from symshape.tracing.symbolic.nodes.environment import Environment

COMPARISONS: dict[str, tuple[Callable[[Term, Term], Term], Callable[[float, float], bool]]] = {
    "eq": (boolean.eq, operator.eq),
    "ne": (boolean.ne, operator.ne),
    "lt": (boolean.lt, operator.lt),
    "le": (boolean.le, operator.le),
    "gt": (boolean.gt, operator.gt),
    "ge": (boolean.ge, operator.ge),
}
"""By comparison: its operator on exact ratios, as integers, and on plain floats."""
_SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def comparison(
    env: Environment,
    name: str,
    left: FloatTerm | float,
    right: FloatTerm | float,
    is_float: bool = True,
) -> Term | None:
    """Return a comparison as a condition on sizes, without asking for its truth; None if it is not
    one.

    Args:
        env: the environment of the sizes.
        name: the name of the comparison, as in ``COMPARISONS``.
        left: the left side.
        right: the right side.
        is_float: whether a float holds the right side, if that is a constant.
    """
    one, other = (
        each.ratio() if isinstance(each, FloatTerm) else _constant_ratio(each)
        for each in (left, right)
    )
    if one is not None and other is not None:
        a, b = arithmetic.scale(one[0], other[1]), arithmetic.scale(other[0], one[1])
        if env.exact_as_float(a) and env.exact_as_float(b):
            return COMPARISONS[name][0](a, b)
    return _by_threshold(env, name, left, right) if is_float else None


def where(env: Environment, float_of: Monotone, relation: str, constant: float) -> Term | None:
    """Return the condition on an integer under which a float computed from it stands in a relation
    to a constant.
    """
    whole = float_of.of
    if not env.exact_as_float(whole):
        return None
    least = 0 if env.known(boolean.ge(whole, 0)) else -LARGEST
    if float_of.least is not None:
        within = boolean.and_(boolean.ge(whole, float_of.least), boolean.le(whole, float_of.most))
        if not env.hint(within) or not env.evaluate(within):
            return None
        least = float_of.least
    try:
        first, end = float_of.where(relation, constant, least)
    except (ArithmeticError, ValueError):
        return None
    start = boolean.TRUE if first == least else boolean.ge(whole, first)
    return boolean.and_(start, boolean.TRUE if end > float_of.most else boolean.lt(whole, end))


def is_exact(value: FloatTerm | float) -> bool:
    """Return whether a float is in the range in which floats hold all integers exactly."""
    return isinstance(value, float) and abs(value) < 2.0**53


def _by_threshold(
    env: Environment, name: str, left: FloatTerm | float, right: FloatTerm | float
) -> Term | None:
    """Return a comparison with a constant as a condition on the other side's only integer, if that
    is monotone.
    """
    if isinstance(right, FloatTerm):
        left, right, name = right, left, _SWAPPED[name]
    of = None if isinstance(right, FloatTerm) or not math.isfinite(right) else monotone(left)
    found = None if of is None else where(env, of, "eq" if name == "ne" else name, right)  # type: ignore[arg-type]
    return boolean.not_(found) if found is not None and name == "ne" else found


def _constant_ratio(value: float) -> tuple[Term, int] | None:
    """Return a float as an exact ratio to compare with a rounded quotient; None if rounding could
    change the answer.
    """
    if not math.isfinite(value):
        return None
    numerator, denominator = value.as_integer_ratio()
    return (
        (arithmetic.const(numerator), denominator)
        if denominator <= 2**10 and abs(numerator) < 2**53
        else None
    )
