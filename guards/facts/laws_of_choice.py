"""Laws of ``min``, ``max`` and ``ite``: operands that never win, choices that are known or are an
extreme.
"""

from __future__ import annotations

from guards.facts.component import Component, replaced
from guards.facts.law import Rewrite
from guards.terms import arithmetic, extremes
from guards.terms.arithmetic import ONE
from guards.terms.term import Op, Term

PAIRS = 600
"""Pairs of operands of one ``min`` or ``max`` that are compared with each other; more operands go
by their ranges.
"""


def dominated(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """Operands of ``min`` or ``max`` that another one always beats go."""
    least = term.op is Op.MIN
    parts = list(term.args)
    if len(parts) * (len(parts) - 1) > PAIRS:
        parts = _not_beaten_by_ranges(component, parts, least)
    tried = 0
    for one in list(parts):
        for other in parts:
            if one is other:
                continue
            tried += 1
            if tried > PAIRS:
                break
            gap = component.bounds(
                arithmetic.sub(one, other) if least else arithmetic.sub(other, one)
            )[0]
            if gap is not None and gap >= 0:  # `one` never beats `other`
                parts = [part for part in parts if part is not one]
                break
    if len(parts) == len(term.args):
        return None
    return (extremes.minimum if least else extremes.maximum)(*parts)


def _not_beaten_by_ranges(component: Component, parts: list[Term], least: bool) -> list[Term]:
    """Return the operands without those whose ranges lie wholly beyond the range of another
    operand.
    """
    best: Term | None = None
    limit = 0
    for part in parts:
        lo, hi = component.bounds(part)
        end = hi if least else lo
        if end is not None and (best is None or (end < limit if least else end > limit)):
            best, limit = part, end
    if best is None:
        return parts
    kept = []
    for part in parts:
        lo, hi = component.bounds(part)
        near = lo if least else hi
        if part is best or near is None or (near < limit if least else near > limit):
            kept.append(part)
    return kept


def absorbed(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """An operand ``max(a, ...)`` of a ``min`` that has ``a`` too goes, and the other way round."""
    opposite = Op.MAX if term.op is Op.MIN else Op.MIN
    own = set(term.args)
    kept = [part for part in term.args if part.op is not opposite or own.isdisjoint(part.args)]
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
    return (
        extremes.maximum(then, otherwise)
        if test is opposite or test is arithmetic.add(opposite, ONE)
        else None
    )


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
    return (
        (otherwise if lo == 0 else then)
        if one is not None and one is replaced(otherwise, value)
        else None
    )
