"""Case distinction: the operands that a ``min``, ``max`` or ``ite`` may equal, each with its
condition.
"""

from __future__ import annotations

from guards.terms import boolean, extremes
from guards.terms.term import Op, Term

MOST_CASES = 24
"""The largest number of operands of a ``min`` or ``max`` that are compared with each other; more
are halved.
"""


def cases(part: Term) -> list[tuple[Term, Term]]:
    """Return the values of a ``min``, ``max`` or ``ite`` with their conditions; [] for any other
    term.

    At least one of the conditions holds wherever the term is defined; those of ``min`` and ``max``
    overlap where operands are equal.

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
