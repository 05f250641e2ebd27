"""Taking a choice apart: which of its operands a ``min``, ``max`` or ``ite`` is, and when."""

from __future__ import annotations

from guards.terms import boolean
from guards.terms.term import Op, Term


def cases(part: Term) -> list[tuple[Term, Term]]:
    """What a ``min``, ``max`` or ``ite`` can be, each time with the condition under which it is that; else nothing.

    At least one of the conditions holds wherever the term is defined; those of ``min`` and ``max`` overlap where
    operands are equal.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.extremes import maximum
    >>> x, y = symbol("x"), symbol("y")
    >>> cases(maximum(x, y)), cases(x)
    ([(<x >= y>, <x>), (<x <= y>, <y>)], [])
    """
    op = part.op
    if op is Op.ITE:
        condition, then, otherwise = part.args
        return [(condition, then), (boolean.not_(condition), otherwise)]
    if op is not Op.MIN and op is not Op.MAX:
        return []
    wins = boolean.le if op is Op.MIN else boolean.ge
    found: list[tuple[Term, Term]] = []
    for taken in part.args:
        beaten = [wins(taken, other) for other in part.args if other is not taken]
        found.append((boolean.and_(*beaten), taken))
    return found
