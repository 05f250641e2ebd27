"""Detection of independent symbols: conditions about them are decided by bounds alone."""

from __future__ import annotations

from guards.facts.component import Component
from guards.terms import arithmetic
from guards.terms.term import Op, Term

TIED, HOLED, FREE = 0, 1, 2


def freedom(component: Component) -> int:
    """Return how independent the symbols of a component are: ``FREE``, ``HOLED`` or ``TIED``.

    ``FREE``: only ranges are known. ``HOLED``: single values inside a range are excluded too.
    ``TIED``: anything else.
    """
    memo = component.memo
    if memo.freedom < 0:
        memo.freedom = _found(component)
    return memo.freedom


def _found(component: Component) -> int:
    if component.rows:
        return TIED
    for replacement in component.rewrites.values():
        if replacement.op is not Op.CONST:
            return TIED
    for atom in component.ranges:
        if atom.op is not Op.SYMBOL:
            return TIED
    for condition in component.residue:
        if condition.op is not Op.NE:
            return TIED
        items = arithmetic.split(condition.args[0])[1]
        if len(items) != 1 or items[0][0].op is not Op.SYMBOL:
            return TIED
    return HOLED if component.residue else FREE


def bounds_tell_all(component: Component, condition: Term) -> bool:
    """Return whether a condition that the bounds leave open is true for some values and false for
    others.

    The left side is linear in independent symbols, so it takes both of its bounds, which are no
    holes. With coefficients 1 and -1 it takes every integer between them, if no range has a hole. A
    single symbol takes every value but its holes.
    """
    if condition.kinds:  # not linear in symbols
        return False
    free = freedom(component)
    if free == TIED or (
        component.rewrites and not condition.symbols.isdisjoint(component.rewrites)
    ):
        return False
    if condition.op is Op.LE:
        return True
    if condition.op is Op.EQ or condition.op is Op.NE:
        items = arithmetic.split(condition.args[0])[1]
        return len(items) == 1 or (
            free == FREE and all(abs(coefficient) == 1 for _, coefficient in items)
        )
    return False
