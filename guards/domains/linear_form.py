"""Linear forms in normal form, and what a relation says about one: the range in which it keeps the
form.
"""

from __future__ import annotations

from math import gcd

from guards.domains.interval_arithmetic import Pair
from guards.terms import arithmetic
from guards.terms.term import Monomials, Op, Term


def normal_form(items: Monomials) -> tuple[Monomials, int]:
    """A linear form with coprime coefficients, the first positive, and the factor that was taken
    out.

    >>> from guards.terms.arithmetic import symbol
    >>> normal_form(((symbol("x"), -4), (symbol("y"), 6)))
    (((<x>, 2), (<y>, -3)), -2)
    """
    factor = gcd(*(c for _, c in items))
    if items[0][1] < 0:
        factor = -factor
    if factor == 1:
        return items, 1
    return tuple((m, c // factor) for m, c in items), factor


def bounded(
    constant: int, items: Monomials, lo: int | None, hi: int | None
) -> tuple[Monomials, Pair]:
    """The form of the items, and the range in which ``lo <= constant + items <= hi`` keeps it,
    rounded to integers.

    The range is empty (its ends the wrong way round) where no integer is left.

    >>> from guards.terms.arithmetic import symbol
    >>> x, y = symbol("x"), symbol("y")
    >>> bounded(1, ((x, -2), (y, 4)), 0, None), bounded(1, ((x, 2),), 0, 0)
    ((((<x>, 1), (<y>, -2)), (None, 0)), (((<x>, 1),), (0, -1)))
    """
    form, factor = normal_form(items)
    low = None if lo is None else lo - constant
    high = None if hi is None else hi - constant
    if factor == 1:
        return form, (low, high)
    if factor < 0:
        low, high = None if high is None else -high, None if low is None else -low
        factor = -factor
    return form, (
        None if low is None else -(-low // factor),
        None if high is None else high // factor,
    )


def bounded_by(relation: Term) -> tuple[Monomials, Pair] | None:
    """The form that an equation or an inequality bounds, and its range; None for what is neither.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, gt, ne
    >>> x, y = symbol("x"), symbol("y")
    >>> bounded_by(gt(x + y, 2)), bounded_by(eq(x % 8, 0)), bounded_by(ne(x, 0))
    ((((<x>, 1), (<y>, 1)), (3, None)), (((<x % 8>, 1),), (0, 0)), None)
    """
    if relation.op is not Op.EQ and relation.op is not Op.LE:
        return None
    constant, items = arithmetic.split(relation.args[0])
    return bounded(constant, items, 0 if relation.op is Op.EQ else None, 0)
