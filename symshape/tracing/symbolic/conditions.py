"""Analysis of conditions: split them into conjunctions, and recognise one that always holds."""

from __future__ import annotations

from guards.terms import arithmetic, boolean
from guards.terms.term import Op, Term, among

_LARGEST = 2**63 - 1


def always_fits(condition: Term) -> bool:
    """Return whether a condition says ``x <= 2**63 - 1``: torch asks that of each full slice, and
    sizes are int64.
    """
    if condition.op is not Op.LE:
        return False
    constant, items = arithmetic.split(condition.args[0])
    return constant <= -_LARGEST and len(items) == 1 and items[0][1] == 1


def parts_of(condition: Term) -> list[Term]:
    """Return the conjuncts of a condition.

    ``a and b`` gives both, ``x*y != 0`` gives ``x != 0`` and ``y != 0``, ``x == min(x, c)`` gives
    ``x <= c``.
    """
    if condition.op is Op.AND:
        return [part for each in condition.args for part in parts_of(each)]
    if condition.op is Op.EQ:
        term = condition.args[0]
        for monomial, coefficient in arithmetic.split(term)[1]:
            if monomial.op in (Op.MIN, Op.MAX) and abs(coefficient) == 1:
                # what the monomial equals
                rest = arithmetic.sub(monomial, arithmetic.scale(term, coefficient))
                if among(rest, monomial.args):
                    relation = boolean.le if monomial.op is Op.MIN else boolean.ge
                    return [relation(rest, other) for other in monomial.args if other is not rest]
    if condition.op is Op.NE:
        constant, items = arithmetic.split(condition.args[0])
        if constant == 0 and len(items) == 1 and items[0][0].op is Op.MUL:
            return [boolean.ne(atom, 0) for atom in dict.fromkeys(items[0][0].args)]
    return [condition]
