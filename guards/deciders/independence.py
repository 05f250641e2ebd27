"""Where bounds alone tell all: conditions about symbols that take their values independently of each other."""

from __future__ import annotations

from guards.facts.component import Component
from guards.terms import arithmetic
from guards.terms.term import Op, Term

TIED, HOLED, FREE = 0, 1, 2


def freedom(component: Component) -> int:
    """Whether each value of a symbol goes with each value of another: ``TIED`` where that is not seen.

    ``FREE``: what is known are ranges; ``HOLED``: and single values inside a range that are left out.
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
    """Whether a condition that bounds leave open depends on the values.

    Its left side, which is linear in symbols, takes both of its bounds, which are no holes. With coefficients 1 and -1
    it takes every integer between them, if no range has a hole; a single symbol takes every value but its holes.
    """
    if condition.kinds:  # not linear in symbols
        return False
    free = freedom(component)
    if free == TIED or (component.rewrites and not condition.symbols.isdisjoint(component.rewrites)):
        return False
    if condition.op is Op.LE:
        return True
    if condition.op is Op.EQ or condition.op is Op.NE:
        items = arithmetic.split(condition.args[0])[1]
        return len(items) == 1 or (free == FREE and all(abs(coefficient) == 1 for _, coefficient in items))
    return False
