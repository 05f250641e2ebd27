"""Laws of sums: a quotient and what belongs to it put together, choices by one condition made
once.
"""

from __future__ import annotations

from guards.facts.component import Component
from guards.facts.law import Rewrite
from guards.facts.laws_of_division import beside, monomials_of, over
from guards.terms import arithmetic, boolean, division
from guards.terms.term import Monomials, Op, Term


def fold_remainder(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """``a - b*(a // b)`` is a remainder."""
    _, items = term.args
    for monomial, c in items:
        if not monomial.kinds:
            continue
        for quotient in arithmetic.factors(monomial):
            if quotient.op is not Op.FLOORDIV:
                continue
            dividend, divisor = quotient.args
            if divisor.op is Op.CONST:
                number = divisor.args[0]
                rest = (
                    None
                    if c % number
                    else arithmetic.scale(beside(monomial, quotient), -c // number)
                )
            else:
                rest = (
                    None
                    if divisor.op is Op.ADD
                    else over(monomial, (quotient, *arithmetic.factors(divisor)))
                )
                rest = None if rest is None else arithmetic.scale(rest, -c)
            if rest is None:
                continue
            made = arithmetic.sub(
                term, arithmetic.add(arithmetic.scale(monomial, c), arithmetic.mul(rest, dividend))
            )
            if monomials_of(made) + 1 < len(items):
                return arithmetic.add(made, arithmetic.mul(rest, division.mod(dividend, divisor)))
    return None


def unfold_remainder(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """A remainder beside its quotient is written out where that leaves fewer parts."""
    _, items = term.args
    for monomial, c in items:
        if not monomial.kinds:
            continue
        for remainder in arithmetic.factors(monomial):
            if remainder.op is not Op.MOD:
                continue
            dividend, divisor = remainder.args
            others = arithmetic.scale(beside(monomial, remainder), c)
            whole = arithmetic.sub(
                dividend, arithmetic.mul(divisor, division.floordiv(dividend, divisor))
            )
            made = arithmetic.sub(term, arithmetic.mul(others, arithmetic.sub(remainder, whole)))
            if monomials_of(made) < len(items):
                return made
    return None


def shifted_quotients(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """``(a + r) // n`` added up over ``n`` values ``r`` that leave all remainders."""
    constant, items = term.args
    groups: dict[tuple[int, Monomials, bool], list[tuple[Term, int, int]]] = {}
    for monomial, c in items:
        if monomial.op is Op.FLOORDIV and monomial.args[1].op is Op.CONST:
            shift, inner = arithmetic.split(monomial.args[0])
            key = monomial.args[1].args[0], inner, c > 0
            groups.setdefault(key, []).append((monomial, c, shift))
    for (number, inner, positive), members in groups.items():
        if len(members) != number or {shift % number for _, _, shift in members} != set(
            range(number)
        ):
            continue
        c = min(abs(c) for _, c, _ in members) * (1 if positive else -1)
        # sum of (a + r) // n over r = 0 ... n - 1 is a; shifts beyond n - 1 add whole numbers
        extra = sum(shift // number for _, _, shift in members)
        rest = dict(items)
        for monomial, _, _ in members:
            rest[monomial] -= c
        return arithmetic.add(
            arithmetic.linear(constant + c * extra, rest),
            arithmetic.scale(arithmetic.linear(0, dict(inner)), c),
        )
    return None


def one_choice(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """Choices by the same condition are made once, for the whole sum."""
    constant, items = term.args
    chosen = [
        (m, c, atom)
        for m, c in items
        if m.kinds
        for atom in arithmetic.factors(m)
        if atom.op is Op.ITE
    ]
    for _, _, first in chosen:
        condition = first.args[0]
        same = {m: (c, atom) for m, c, atom in chosen if atom.args[0] is condition}
        if len(same) < 2:
            continue
        rest = arithmetic.linear(constant, {m: c for m, c in items if m not in same})
        branches = [
            arithmetic.total(
                arithmetic.mul(arithmetic.scale(beside(m, a), c), a.args[side])
                for m, (c, a) in same.items()
            )
            for side in (1, 2)
        ]
        then, otherwise = [rewrite(component, arithmetic.add(branch, rest)) for branch in branches]
        if then is otherwise:
            return then
        return arithmetic.add(boolean.ite(condition, *branches), rest)
    return None
