"""Taking a choice apart: which of its operands a ``min``, ``max`` or ``ite`` is, and when."""

from __future__ import annotations

from guards.terms import boolean, extremes
from guards.terms.term import Op, Term

MOST_CASES = 24
"""Operands of a ``min`` or ``max`` that are told apart one by one, each compared with all others; more are halved."""


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
    if len(part.args) > MOST_CASES:
        extreme = extremes.minimum if op is Op.MIN else extremes.maximum
        middle = len(part.args) // 2
        first, second = extreme(*part.args[:middle]), extreme(*part.args[middle:])
        return [(wins(first, second), first), (wins(second, first), second)]
    found: list[tuple[Term, Term]] = []
    for taken in part.args:
        beaten = [wins(taken, other) for other in part.args if other is not taken]
        found.append((boolean.and_(*beaten), taken))
    return found
