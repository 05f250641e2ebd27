"""Maximum, minimum and if-then-else of two terms, simplified to one of them if the facts decide."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

from guards.terms import boolean, extremes, fold
from guards.terms.term import Op, Term, postorder

Known = Callable[[Term], bool]
"""The type of functions that return whether a condition holds for certain."""


def maximum(known: Known, a: Term, b: Term) -> Term:
    """Return the greater of two terms; one of them if the facts decide."""
    if known(boolean.le(b, a)):
        return a
    return b if known(boolean.le(a, b)) else extremes.maximum(a, b)


def minimum(known: Known, a: Term, b: Term) -> Term:
    """Return the lesser of two terms; one of them if the facts decide."""
    if known(boolean.le(a, b)):
        return a
    return b if known(boolean.le(b, a)) else extremes.minimum(a, b)


def ite(known: Known, condition: Term, then: Term, otherwise: Term) -> Term:
    """Return ``then if condition else otherwise``; one of them if the facts decide."""
    if known(condition):
        return then
    return otherwise if known(boolean.not_(condition)) else boolean.ite(condition, then, otherwise)


def tidy(known: Known, term: Term) -> Term:
    """Return an equal term without each ``min`` and ``max`` that the facts decide."""
    if not any(part.op in (Op.MIN, Op.MAX) for part in postorder(term)):
        return term

    def tidied(part: Term, operands: list[Term]) -> Term:
        if part.op is Op.MIN:
            return reduce(partial(minimum, known), operands)
        if part.op is Op.MAX:
            return reduce(partial(maximum, known), operands)
        return fold.rebuild(part, operands)

    return fold.fold(term, tidied)
