"""Laws of ``//`` and ``%``: multiples of the divisor, nested divisions, and what the ranges leave
of a quotient.
"""

from __future__ import annotations

from itertools import product
from math import gcd

from guards.facts.component import Component
from guards.facts.law import Rewrite
from guards.terms import arithmetic, division
from guards.terms.arithmetic import ONE, ZERO
from guards.terms.term import Op, Term, drop

_MODULUS = 16  # remainders of polynomials are tried for divisors up to this one,
_RESIDUES = 256  # and up to so many combinations
_DIVISIONS = 8  # steps of one polynomial division


def _leading(divisor: Term) -> tuple[Term, int]:
    """The monomial of the divisor with the most factors (the last in order among these), and its
    coefficient.
    """
    return max(
        arithmetic.split(divisor)[1],
        key=lambda item: (len(arithmetic.factors(item[0])), item[0].order),
    )


def over(monomial: Term, atoms: tuple[Term, ...]) -> Term | None:
    """``monomial`` divided by the product of ``atoms``, where they are among its factors."""
    rest = list(arithmetic.factors(monomial))
    for atom in atoms:
        if not drop(rest, atom):
            return None
    return arithmetic.monomial(rest)


def beside(monomial: Term, atom: Term) -> Term:
    """The other factors of a monomial, 1 where there are none."""
    rest = over(monomial, (atom,))
    return ONE if rest is None else rest


def divide(dividend: Term, divisor: Term) -> tuple[Term, Term]:
    """``(q, r)`` with ``dividend == divisor * q + r``: polynomial division, as far as it makes
    ``r`` shorter.

    >>> from guards.terms.arithmetic import symbol
    >>> x, y = symbol("x"), symbol("y")
    >>> divide(x * y + x + 1, y + 1)
    (<x>, <1>)
    """
    if divisor.op is Op.CONST:
        return ZERO, dividend
    monomial, coefficient = _leading(divisor)
    atoms = arithmetic.factors(monomial)
    quotient, rest = ZERO, dividend
    best = quotient, rest
    for _ in range(_DIVISIONS):
        for m, c in arithmetic.split(rest)[1]:
            if c % coefficient == 0:
                part = over(m, atoms)
                if part is not None:
                    break
        else:
            break
        step = arithmetic.scale(part, c // coefficient)
        quotient = arithmetic.add(quotient, step)
        rest = arithmetic.sub(rest, arithmetic.mul(step, divisor))
        if monomials_of(rest) < monomials_of(best[1]):
            best = quotient, rest
    return best


def monomials_of(term: Term) -> int:
    """Return the number of monomials of a term."""
    return len(arithmetic.split(term)[1])


def quotient_of_multiple(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """Move multiples of the divisor out of the dividend, in front of the quotient."""
    quotient, rest = divide(*term.args)
    return (
        None
        if quotient is ZERO
        else arithmetic.add(quotient, division.floordiv(rest, term.args[1]))
    )


def remainder_of_multiple(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """Drop multiples of the divisor from the dividend of a remainder."""
    quotient, rest = divide(*term.args)
    return None if quotient is ZERO else division.mod(rest, term.args[1])


def known_quotient(component: Component, dividend: Term, divisor: Term) -> int | None:
    """The value of ``dividend // divisor`` where the ranges leave only one."""
    if divisor.op is Op.CONST:
        number = divisor.args[0]
        lo, hi = component.bounds(dividend)
        return (
            lo // number
            if lo is not None and hi is not None and lo // number == hi // number
            else None
        )
    least, _ = component.bounds(divisor)
    if least is None or least <= 0:
        return None
    lo, hi = component.bounds(dividend)
    open_ended = (hi if lo is not None and lo >= 0 else lo) is None
    if open_ended and not component.rows and dividend.symbols.isdisjoint(divisor.symbols):
        return None  # nothing ties the two together
    if lo is not None and lo >= 0:
        if hi is not None and hi < least:
            return 0
        above, _ = component.bounds(arithmetic.sub(divisor, dividend))
        if above is not None and above > 0:
            return 0
        slack = component.bounds(arithmetic.sub(dividend, divisor))[0]
        if slack is not None and slack >= 0:
            above, _ = component.bounds(arithmetic.sub(arithmetic.scale(divisor, 2), dividend))
            return 1 if above is not None and above > 0 else None
    elif hi is not None and hi < 0:
        slack = component.bounds(arithmetic.add(dividend, divisor))[0]
        return -1 if slack is not None and slack >= 0 else None
    return None


def quotient_in_range(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """The quotient of a value that lies within one period of the divisor."""
    value = known_quotient(component, *term.args)
    return None if value is None else arithmetic.const(value)


def remainder_in_range(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """The remainder of a value that lies within one period of the divisor."""
    value = known_quotient(component, *term.args)
    return (
        None
        if value is None
        else arithmetic.sub(term.args[0], arithmetic.scale(term.args[1], value))
    )


def nested_quotient(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """``(a // b) // c`` divides once."""
    inner, outer = term.args
    if inner.op is not Op.FLOORDIV:
        return None
    lo, _ = component.bounds(outer)
    return (
        division.floordiv(inner.args[0], arithmetic.mul(inner.args[1], outer))
        if lo is not None and lo > 0
        else None
    )


def _shared(divisor: Term, by: Term) -> Term | None:
    """``divisor / by`` where that is exact and plain to see."""
    constant, items = arithmetic.split(divisor)
    if by.op is Op.CONST:
        number = by.args[0]
        return division.floordiv(divisor, by) if arithmetic.content(divisor) % number == 0 else None
    atoms = arithmetic.factors(by)
    if by.op is Op.ADD or constant:
        return None
    parts = [(over(m, atoms), c) for m, c in items]
    if any(m is None for m, _ in parts):
        return None
    return arithmetic.total(arithmetic.scale(m, c) for m, c in parts if m is not None)


def quotient_of_remainder(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """``(a % (b*c)) // b`` divides first."""
    inner, by = term.args
    if inner.op is not Op.MOD:
        return None
    rest = _shared(inner.args[1], by)
    if rest is None:
        return None
    lo, _ = component.bounds(rest)
    return (
        division.mod(division.floordiv(inner.args[0], by), rest)
        if lo is not None and lo > 0
        else None
    )


def remainder_of_remainder(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """``(a % (b*c)) % b`` needs no inner remainder."""
    inner, by = term.args
    if inner.op is not Op.MOD or _shared(inner.args[1], by) is None:
        return None
    return division.mod(inner.args[0], by)


def inner_remainder(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """A remainder by a multiple of the divisor is not needed below another one."""
    dividend, by = term.args
    constant, items = arithmetic.split(dividend)
    for monomial, c in items:
        atoms = arithmetic.factors(monomial)
        for atom in atoms:
            if atom.op is Op.MOD and (atom.args[1] is by or _shared(atom.args[1], by) is not None):
                others = arithmetic.scale(beside(monomial, atom), c)
                rest = arithmetic.linear(constant, {m: d for m, d in items if m is not monomial})
                return division.mod(arithmetic.add(rest, arithmetic.mul(others, atom.args[0])), by)
    return None


def _coarse(
    component: Component, dividend: Term, divisor: Term
) -> tuple[Term, Term, Term, Term] | None:
    """``(g, a, m, r)`` with ``dividend == g*a + r``, ``divisor == g*m`` and ``0 <= r < g``, not all
    of them trivial.
    """
    constant, items = arithmetic.split(dividend)
    if divisor.op is Op.CONST:
        number = divisor.args[0]
        for g in sorted({gcd(number, c) for _, c in items}, reverse=True):
            if g <= 1:
                continue
            fine = arithmetic.linear(constant % g, {m: c for m, c in items if c % g})
            lo, hi = component.bounds(fine)
            if lo is not None and hi is not None and lo >= 0 and hi < g and fine.op is not Op.CONST:
                coarse = arithmetic.linear(
                    constant // g, {m: c // g for m, c in items if c % g == 0}
                )
                return arithmetic.const(g), coarse, arithmetic.const(number // g), fine
        return None
    parts = arithmetic.split(divisor)[1]
    if divisor.op is Op.ADD and (len(parts) != 1 or arithmetic.split(divisor)[0]):
        return None
    least, _ = component.bounds(divisor)
    if least is None or least <= 0:
        return None
    for atom in dict.fromkeys(arithmetic.factors(parts[0][0])):
        lo, _ = component.bounds(atom)
        if lo is None or lo <= 0:
            continue
        split = [(over(m, (atom,)), m, c) for m, c in items]
        if all(m is None for m, _, _ in split):
            continue
        fine = arithmetic.linear(constant, {m: c for inner, m, c in split if inner is None})
        low, _ = component.bounds(fine)
        above, _ = component.bounds(arithmetic.sub(atom, fine))
        if low is not None and low >= 0 and above is not None and above > 0:
            coarse = arithmetic.total(
                arithmetic.scale(inner, c) for inner, _, c in split if inner is not None
            )
            rest = division.floordiv(divisor, atom)
            return None if fine is ZERO else (atom, coarse, rest, fine)
    return None


def coarse_quotient(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """A part that is too fine to count towards the quotient goes."""
    found = _coarse(component, *term.args)
    return None if found is None else division.floordiv(found[1], found[2])


def coarse_remainder(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """A part that is too fine to count towards the quotient comes out of the remainder."""
    found = _coarse(component, *term.args)
    return (
        None
        if found is None
        else arithmetic.add(arithmetic.mul(found[0], division.mod(found[1], found[2])), found[3])
    )


def constant_remainder(component: Component, term: Term, rewrite: Rewrite) -> Term | None:
    """The remainder of a polynomial that is the same whatever its symbols leave."""
    dividend, divisor = term.args
    if divisor.op is not Op.CONST or divisor.args[0] > _MODULUS:
        return None
    constant, items = arithmetic.split(dividend)
    symbols = dividend.symbols
    number: int = divisor.args[0]
    if (
        len(symbols) > 3
        or number ** len(symbols) > _RESIDUES
        or all(m.op is not Op.MUL for m, _ in items)
    ):
        return None
    place = {symbol: position for position, symbol in enumerate(symbols)}
    parts: list[tuple[list[int], int]] = []
    for m, c in items:
        atoms = arithmetic.factors(m)
        if any(atom.op is not Op.SYMBOL for atom in atoms):
            return None
        parts.append(([place[atom] for atom in atoms], c))
    rest = constant % number
    for values in product(range(number), repeat=len(symbols)):
        total = constant
        for places, c in parts:
            for position in places:
                c *= values[position]
            total += c
        if total % number != rest:
            return None
    return arithmetic.const(rest)
