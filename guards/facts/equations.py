"""Equations solved for an atom, by a new symbol where no coefficient is 1 and where a remainder is
known.

*Source*: W. Pugh, "The Omega test: a fast and practical integer programming algorithm for
dependence analysis", 1991, for equations without unit coefficients.
"""

from __future__ import annotations

from math import gcd

from guards.domains import interval_arithmetic
from guards.facts.component import contains, new_symbol
from guards.facts.learning import Learning
from guards.terms import arithmetic, boolean
from guards.terms.term import Monomials, Op, Term

# atoms that an equation may rewrite, best first
_SOLVABLE = (Op.SYMBOL, Op.FLOORDIV, Op.MIN, Op.MAX, Op.ITE)


def solved(learning: Learning, term: Term) -> tuple[Term, Term] | None:
    """An atom to replace and its replacement, drawn from ``term == 0``."""
    constant, items = arithmetic.split(term)
    if len(items) == 1 and items[0][0].op is Op.MOD:
        divided = _divided(learning, items[0][0], constant // items[0][1])
        if divided is not None:
            return divided
    for op in _SOLVABLE:
        for atom, coefficient in reversed(items):
            if atom.op is not op or coefficient not in (1, -1):
                continue
            rest = arithmetic.linear(
                constant * -coefficient, {m: c * -coefficient for m, c in items if m is not atom}
            )
            if not contains(rest, atom):
                if op is not Op.SYMBOL:
                    learning.pending += _meaning(learning, atom, rest)
                return atom, rest
    return _parametrised(learning, constant, items)


def _parametrised(learning: Learning, constant: int, items: Monomials) -> tuple[Term, Term] | None:
    """Solve an equation without unit coefficients by a new symbol (as Pugh's Omega test does)."""
    if len(items) < 2:
        return None
    atom, coefficient = min(items, key=lambda item: (abs(item[1]), item[0].op is not Op.SYMBOL))
    if atom.op is not Op.SYMBOL or any(atom in m.symbols for m, _ in items if m is not atom):
        return None
    sign = 1 if coefficient > 0 else -1
    least = abs(coefficient)
    # t = atom + sum(q * m) + q0 turns the equation into least*t + sum(r * m) + r0 == 0 with smaller
    # r
    parts = {m: (sign * c) // least for m, c in items if m is not atom}
    whole = arithmetic.linear((sign * constant) // least, parts)
    fresh = new_symbol(f"{least}:{atom.name}")
    lo, hi = learning.component.bounds(arithmetic.add(atom, whole))
    learning.component.ranges[fresh] = (lo, hi)
    learning.component.fresh[fresh] = arithmetic.ONE, atom, arithmetic.scale(whole, -1)
    rest = {m: (sign * c) % least for m, c in items if m is not atom}
    learning.pending.append(
        boolean.is_zero(arithmetic.linear((sign * constant) % least, {fresh: least, **rest}))
    )
    return atom, arithmetic.sub(fresh, whole)


def _meaning(learning: Learning, atom: Term, value: Term) -> list[Term]:
    """Return the conditions on the operands of ``atom`` that ``atom == value`` implies."""
    args = atom.args
    if atom.op is Op.FLOORDIV:
        low, _ = learning.component.bounds(args[1])
        if low is None or low <= 0:
            return []
        slack = arithmetic.sub(args[0], arithmetic.mul(args[1], value))
        return [boolean.ge(slack, 0), boolean.lt(slack, args[1])]
    if atom.op is Op.ITE:
        yes = boolean.and_(args[0], boolean.eq(value, args[1]))
        return [boolean.or_(yes, boolean.and_(boolean.not_(args[0]), boolean.eq(value, args[2])))]
    below = boolean.le if atom.op is Op.MIN else boolean.ge
    return [
        boolean.or_(*[boolean.eq(value, part) for part in args]),
        *[below(value, part) for part in args],
    ]


def _divided(learning: Learning, remainder: Term, offset: int) -> tuple[Term, Term] | None:
    """Solve ``a % b + offset == 0`` for a symbol in ``a`` by a new symbol, in effect for
    ``a // b``.
    """
    component = learning.component
    dividend, divisor = remainder.args
    lo, hi = component.bounds(remainder)
    if (lo is not None and -offset < lo) or (hi is not None and -offset > hi):
        component.contradictory = True
        return None
    if divisor.op is Op.CONST:
        return _divided_by_number(learning, dividend, divisor.args[0], -offset)
    lo, hi = component.bounds(divisor)
    positive = lo is not None and lo > 0
    if not positive and not (hi is not None and hi < 0):
        return None
    constant, items = arithmetic.split(dividend)
    for atom, coefficient in reversed(items):
        if atom.op is not Op.SYMBOL or coefficient not in (1, -1) or atom in divisor.symbols:
            continue
        rest = arithmetic.linear(constant, {m: c for m, c in items if m is not atom})
        if atom in rest.symbols:
            continue
        quotient = new_symbol(f"{divisor}\u00b7{atom.name}")
        component.ranges[quotient] = interval_arithmetic.floordiv(
            component.bounds(dividend), component.bounds(divisor)
        )
        if positive:
            learning.pending += [boolean.lt(-offset, divisor), boolean.ge(-offset, 0)]
        else:
            learning.pending += [boolean.gt(-offset, divisor), boolean.le(-offset, 0)]
        value = arithmetic.add(arithmetic.mul(divisor, quotient), -offset)
        value = arithmetic.mul(coefficient, arithmetic.sub(value, rest))
        component.fresh[quotient] = (
            divisor,
            atom,
            arithmetic.sub(value, arithmetic.mul(arithmetic.scale(divisor, coefficient), quotient)),
        )
        if coefficient < 0:
            component.fresh[quotient] = (
                arithmetic.scale(divisor, -1),
                *component.fresh[quotient][1:],
            )
        return atom, value
    return None


def _divided_by_number(
    learning: Learning, dividend: Term, number: int, rest: int
) -> tuple[Term, Term] | None:
    """Solve ``dividend % number == rest`` for a symbol whose coefficient has an inverse."""
    constant, items = arithmetic.split(dividend)
    best = None
    for atom, coefficient in items:
        if atom.op is Op.SYMBOL and gcd(coefficient, number) == 1:
            others = {m: c for m, c in items if m is not atom}
            if not any(atom in m.symbols for m in others) and (
                best is None or abs(coefficient) <= abs(best[1])
            ):
                best = atom, coefficient, others
    if best is None:
        return None
    atom, coefficient, others = best
    inverse = coefficient if coefficient in (1, -1) else pow(coefficient, -1, number)
    # coefficient*atom + others + constant == rest (mod number)
    value = arithmetic.linear(
        (rest - constant) * inverse, {m: -c * inverse for m, c in others.items()}
    )
    if not others:
        value = arithmetic.const((rest - constant) * inverse % number)
    quotient = new_symbol(f"{number}\u00b7{atom.name}")
    lo, hi = learning.component.bounds(arithmetic.sub(atom, value))
    learning.component.ranges[quotient] = (
        None if lo is None else -(-lo // number),
        None if hi is None else hi // number,
    )
    learning.component.fresh[quotient] = arithmetic.const(number), atom, value
    return atom, arithmetic.add(arithmetic.scale(quotient, number), value)
