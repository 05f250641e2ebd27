"""The greater, the lesser, the chosen of two terms: one of them where what is known says which."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

from guards.terms import boolean, extremes, fold
from guards.terms.term import Op, Term, postorder

Known = Callable[[Term], bool]
"""Whether a condition holds for certain."""


def maximum(known: Known, a: Term, b: Term) -> Term:
    """The greater of two terms; one of them if the facts say which."""
    if known(boolean.le(b, a)):
        return a
    return b if known(boolean.le(a, b)) else extremes.maximum(a, b)


def minimum(known: Known, a: Term, b: Term) -> Term:
    """The lesser of two terms; one of them if the facts say which."""
    if known(boolean.le(a, b)):
        return a
    return b if known(boolean.le(b, a)) else extremes.minimum(a, b)


def ite(known: Known, condition: Term, then: Term, otherwise: Term) -> Term:
    """``then if condition else otherwise``; one of them if the facts say which."""
    if known(condition):
        return then
    return otherwise if known(boolean.not_(condition)) else boolean.ite(condition, then, otherwise)


def tidy(known: Known, term: Term) -> Term:
    """An equal term, as far as the facts go, in which a ``min`` or ``max`` that they decide is gone."""
    if not any(part.op in (Op.MIN, Op.MAX) for part in postorder(term)):
        return term

    def tidied(part: Term, operands: list[Term]) -> Term:
        if part.op is Op.MIN:
            return reduce(partial(minimum, known), operands)
        if part.op is Op.MAX:
            return reduce(partial(maximum, known), operands)
        return fold.rebuild(part, operands)

    return fold.fold(term, tidied)
