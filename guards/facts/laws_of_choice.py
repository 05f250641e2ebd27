"""Laws of ``min``, ``max`` and ``ite``: operands that never win, choices that are known or are an extreme."""

from __future__ import annotations

from guards.facts.component import Component, replaced
from guards.facts.law import Rewrite
from guards.terms import arithmetic, extremes
from guards.terms.arithmetic import ONE
from guards.terms.term import Op, Term, among


def dominated(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """An operand of ``min`` or ``max`` that another one always beats goes."""
    least = term.op is Op.MIN
    parts = list(term.args)
    for one in parts:
        for other in parts:
            if one is other:
                continue
            gap = component.bounds(arithmetic.sub(one, other) if least else arithmetic.sub(other, one))[0]
            if gap is not None and gap >= 0:  # `one` never beats `other`
                rest = [part for part in parts if part is not one]
                return (extremes.minimum if least else extremes.maximum)(*rest)
    return None


def absorbed(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """An operand ``max(a, ...)`` of a ``min`` that has ``a`` too goes, and the other way round."""
    opposite = Op.MAX if term.op is Op.MIN else Op.MIN
    kept = [p for p in term.args if p.op is not opposite or not any(among(inner, term.args) for inner in p.args)]
    if len(kept) == len(term.args) or not kept:
        return None
    return (extremes.minimum if term.op is Op.MIN else extremes.maximum)(*kept)


def decided(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """A choice whose condition is known is what it chooses."""
    condition, then, otherwise = term.args
    found = component.look(condition)
    return None if found is None else then if found else otherwise


def selection(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """A choice of the smaller or the greater of two is their ``min`` or ``max``."""
    condition, then, otherwise = term.args
    if condition.op is not Op.LE:
        return None
    gap = arithmetic.sub(then, otherwise)
    test = condition.args[0]
    if test is gap or test is arithmetic.add(gap, ONE):
        return extremes.minimum(then, otherwise)
    opposite = arithmetic.scale(gap, -1)
    return extremes.maximum(then, otherwise) if test is opposite or test is arithmetic.add(opposite, ONE) else None


def at_border(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """A choice that is taken at one value only, where both sides agree, is the other side."""
    condition, then, otherwise = term.args
    if condition.op is not Op.LE:
        return None
    constant, items = arithmetic.split(condition.args[0])
    if len(items) != 1 or items[0][0].op is not Op.SYMBOL or abs(items[0][1]) != 1:
        return None
    lo, hi = component.bounds(condition.args[0])
    if lo != 0 and hi != 1:
        return None
    # the condition holds where its term is 0 only, or fails where it is 1 only
    symbol, sign = items[0]
    value = {symbol: arithmetic.const(((0 if lo == 0 else 1) - constant) * sign)}
    one = replaced(then, value)
    return (otherwise if lo == 0 else then) if one is not None and one is replaced(otherwise, value) else None
