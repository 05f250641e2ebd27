"""Laws of ``==``, ``!=`` and ``<=``: quotients multiplied out, common factors, remainders
compared.
"""

from __future__ import annotations

from guards.facts.component import Component
from guards.facts.law import Rewrite
from guards.terms import arithmetic, boolean, division
from guards.terms.term import SYMBOLIC_DIVISION, Op, Term


def cross_multiplied(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """A quotient compared is its dividend compared with multiples of the divisor."""
    argument = term.args[0]
    constant, items = arithmetic.split(argument)
    quotients = [(m, c) for m, c in items if m.op is Op.FLOORDIV and c in (1, -1)]
    for quotient, c in quotients:
        dividend, divisor = quotient.args
        if divisor.op is Op.CONST:
            continue  # linear already
        lo, _ = component.bounds(divisor)
        if lo is None or lo <= 0:
            continue
        value = arithmetic.linear(-c * constant, {m: -c * d for m, d in items if m is not quotient})
        # quotient - value <= 0 (c == 1), value - quotient <= 0 (c == -1), or quotient == value
        slack = arithmetic.sub(dividend, arithmetic.mul(divisor, value))
        if term.op is Op.LE:
            return boolean.lt(slack, divisor) if c == 1 else boolean.ge(slack, 0)
        both = boolean.and_(boolean.ge(slack, 0), boolean.lt(slack, divisor))
        return both if term.op is Op.EQ else boolean.not_(both)
    return None


def common_factor(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """A factor of both sides that is not 0 (for an order: positive) goes."""
    argument = term.args[0]
    if argument.op is Op.ADD and argument.args[0] == 0 and len(argument.args[1]) > 1:
        common = arithmetic.common_atoms(argument)
    else:
        return None
    atoms = []
    for atom in common:
        lo, hi = component.bounds(atom)
        if (lo is not None and lo > 0) or (term.op is not Op.LE and hi is not None and hi < 0):
            atoms.append(atom)
    if not atoms:
        return None
    rest = arithmetic.without(argument, atoms, 1)
    if term.op is Op.LE:
        return boolean.not_positive(rest)
    return boolean.is_zero(rest) if term.op is Op.EQ else boolean.not_(boolean.is_zero(rest))


def two_remainders(argument: Term) -> Term | None:
    """A term that a divisor must leave no remainder of for ``argument``, two remainders and a
    constant, to be 0.

    >>> from guards import parse
    >>> two_remainders(parse("x % 8 - 2*(y % 4) + 1"))
    >>> two_remainders(parse("2*(y % 4) - x % 8 + 1"))
    <(2*y - x + 1) % 8>
    """
    constant, items = arithmetic.split(argument)
    if len(items) != 2 or items[0][0].op is not Op.MOD or items[1][0].op is not Op.MOD:
        return None
    (one, c), (other, d) = items
    if c < 0:
        one, c, other, d = other, d, one, c
    if c < 0 or d > 0:
        return None
    d = -d
    (a, p), (b, q) = one.args, other.args  # c*(a % p) - d*(b % q) + constant == 0
    if p is q and c == d and not constant:
        return division.mod(arithmetic.sub(a, b), p)
    if (
        p.op is not Op.CONST
        or q.op is not Op.CONST
        or c * p.args[0] != d * q.args[0]
        or not -d < constant < c
    ):
        return None
    return division.mod(
        arithmetic.add(arithmetic.sub(arithmetic.scale(a, c), arithmetic.scale(b, d)), constant),
        c * p.args[0],
    )


def equal_remainders(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """Two remainders compared are one remainder compared with 0."""
    made = two_remainders(term.args[0])
    if made is None:
        return None
    return boolean.is_zero(made) if term.op is Op.EQ else boolean.not_(boolean.is_zero(made))


def without_remainders(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """The relation decided, where writing ``a % b`` as ``a - b*(a // b)`` leaves no more than a
    number.
    """
    argument = term.args[0]
    if not argument.kinds & SYMBOLIC_DIVISION:
        return None
    constant, items = arithmetic.split(argument)
    parts: list[Term] = [arithmetic.const(constant)]
    changed = False
    for monomial, c in items:
        part = arithmetic.const(c)
        for atom in arithmetic.factors(monomial):
            if atom.op is Op.MOD and atom.args[1].op is not Op.CONST:
                a, b = atom.args
                atom = arithmetic.sub(
                    a, arithmetic.mul(b, rewrite(component, division.floordiv(a, b)))
                )
                changed = True
            part = arithmetic.mul(part, atom)
        parts.append(part)
    made = arithmetic.total(parts) if changed else argument
    if made.op is not Op.CONST:
        return None
    number = made.args[0]
    holds = number <= 0 if term.op is Op.LE else (number == 0) is (term.op is Op.EQ)
    return boolean.TRUE if holds else boolean.FALSE
