"""McCormick's envelope of a product: the linear inequalities that ``u * v`` obeys where ``u`` and
``v`` have bounds.

Each says that the product of two distances from a bound is not negative:
``(u - u_lo) * (v - v_lo) >= 0``, multiplied out, is linear in ``u``, ``v`` and ``u * v``. Over the
reals these four are the convex hull of the product on a box.

*Source*: G. P. McCormick, "Computability of global solutions to factorable nonconvex programs: Part
I - convex underestimating problems", Mathematical Programming 10, 1976, 147-175.
"""

from __future__ import annotations

from guards.domains.interval_arithmetic import Pair
from guards.terms.term import Term

Inequality = tuple[int, list[tuple[Term, int]]]  # (constant, items): constant + items >= 0


def envelope(product: Term, u: Term, v: Term, u_pair: Pair, v_pair: Pair) -> list[Inequality]:
    """Return the McCormick inequalities of ``product = u * v`` for the ranges of its factors.

    >>> from guards.terms.arithmetic import symbol
    >>> u, v = symbol("u"), symbol("v")
    >>> envelope(u * v, u, v, (2, None), (3, 5))  # (u - 2)*(v - 3) >= 0 and (u - 2)*(5 - v) >= 0
    [(6, [(<u*v>, 1), (<u>, -3), (<v>, -2)]), (-10, [(<u*v>, -1), (<u>, 5), (<v>, 2)])]
    """
    u_lo, u_hi = u_pair
    v_lo, v_hi = v_pair
    found: list[Inequality] = []
    if u_lo is not None and v_lo is not None:
        found.append((u_lo * v_lo, [(product, 1), (u, -v_lo), (v, -u_lo)]))
    if u_hi is not None and v_hi is not None:
        found.append((u_hi * v_hi, [(product, 1), (u, -v_hi), (v, -u_hi)]))
    if u_lo is not None and v_hi is not None:
        found.append((-u_lo * v_hi, [(product, -1), (u, v_hi), (v, u_lo)]))
    if u_hi is not None and v_lo is not None:
        found.append((-u_hi * v_lo, [(product, -1), (u, v_lo), (v, u_hi)]))
    return found


def chord(square: Term, u: Term, below: int) -> Inequality:
    """Return ``(u - below) * (u - below - 1) >= 0``, which ``square = u * u`` obeys for every
    integer ``u``.

    No integer lies between ``below`` and ``below + 1``, so this cuts off more than a tangent does.

    No integer lies between ``below`` and the next one, so this cuts off more than a tangent does.

    >>> from guards.terms.arithmetic import symbol
    >>> u = symbol("u")
    >>> chord(u * u, u, 3)
    (12, [(<u*u>, 1), (<u>, -7)])
    """
    return below * (below + 1), [(square, 1), (u, -2 * below - 1)]
