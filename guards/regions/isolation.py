"""Bringing a symbol to one side of a relation: out of a product, a quotient, a remainder, a ``min``
or ``max``.

Where a step needs something to be true (the sign of a divisor), it asks the solver that called it
for a case.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Protocol

from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.errors import CannotSolve
from guards.facts.facts import Facts
from guards.terms import arithmetic, boolean, division, fold
from guards.terms.boolean import FALSE
from guards.terms.term import Op, Term, drop


class Solver(Protocol):
    """The solver that isolation calls for its cases."""

    facts: Facts
    symbol: Term

    def solve(self, relation: Term) -> Term:
        """The solution of a condition, where it is defined."""

    def where(self, condition: Term, solved: Callable[[Solver], Term]) -> Term:
        """A case: the condition, and what is solved where it holds."""

    def fail(self) -> CannotSolve:
        """The error to raise where no form is known."""


def factor_of(symbol: Term, inside: list[tuple[Term, int]]) -> Term | None:
    """Return the coefficient of a symbol, a term, in monomials that are all linear in the symbol;
    None otherwise.
    """
    factor = arithmetic.ZERO
    for m, c in inside:
        atoms = list(arithmetic.factors(m))
        # a symbol is among its own
        if not drop(atoms, symbol) or any(symbol in a.symbols for a in atoms):
            return None
        factor = arithmetic.add(factor, arithmetic.scale(arithmetic.monomial(atoms), c))
    return factor


def divided_out(solver: Solver, op: Op, factor: Term, rest: Term) -> Term:
    """``factor*symbol + rest`` compared with 0, by the sign of the factor."""
    parts = [
        solver.where(
            boolean.ge(factor, 1),
            lambda _: _bound(solver, op, factor, arithmetic.scale(rest, -1), False),
        ),
        solver.where(
            boolean.le(factor, -1),
            lambda _: _bound(solver, op, arithmetic.scale(factor, -1), rest, op is Op.LE),
        ),
    ]
    if ask(solver.facts, boolean.ne(factor, 0), effort=Effort.CHEAP, only=True) is not True:
        left = replaced(
            compared(op, rest), {factor: arithmetic.ZERO} if factor.op is Op.SYMBOL else {}
        )
        parts.append(solver.where(boolean.eq(factor, 0), lambda _: left))
    return boolean.or_(*parts)


def _bound(solver: Solver, op: Op, factor: Term, value: Term, lower: bool) -> Term:
    """``factor*symbol`` compared with ``value`` (``lower``: it is at least that), for a positive
    factor.
    """
    if lower:
        return boolean.ge(
            solver.symbol,
            arithmetic.scale(division.floordiv(arithmetic.scale(value, -1), factor), -1),
        )
    quotient = division.floordiv(value, factor)
    if op is Op.LE:
        return boolean.le(solver.symbol, quotient)
    left = division.mod(value, factor)
    if op is Op.EQ:
        return boolean.and_(boolean.eq(solver.symbol, quotient), boolean.eq(left, 0))
    return boolean.or_(boolean.ne(solver.symbol, quotient), boolean.ne(left, 0))


def isolated(solver: Solver, op: Op, atom: Term, c: int, rest: Term) -> Term:
    """``c*atom + rest`` compared with 0, the symbol somewhere inside the atom."""
    if op is Op.LE:
        if c > 0:
            return _at_most(solver, atom, division.floordiv(arithmetic.scale(rest, -1), c))
        return _at_least(
            solver, atom, arithmetic.scale(division.floordiv(arithmetic.scale(rest, -1), -c), -1)
        )
    value = division.floordiv(arithmetic.scale(rest, -1 if c > 0 else 1), abs(c))
    left = division.mod(rest, abs(c))
    if op is Op.EQ:
        return boolean.and_(boolean.eq(left, 0), _equal(solver, atom, value))
    if atom.op is Op.MOD and _modulus(solver, atom) is not None:
        differs = _remainder(solver, Op.NE, atom, value)
    else:
        differs = boolean.or_(_at_most(solver, atom, value - 1), _at_least(solver, atom, value + 1))
    return boolean.or_(boolean.ne(left, 0), differs)


def _at_most(solver: Solver, atom: Term, limit: Term) -> Term:
    if atom.op is Op.FLOORDIV:
        return _quotient(solver, atom, limit + 1, boolean.lt, boolean.gt)
    if atom.op is Op.MIN or atom.op is Op.MAX:
        parts = [solver.solve(boolean.le(part, limit)) for part in atom.args]
        return boolean.and_(*parts) if atom.op is Op.MAX else boolean.or_(*parts)
    if atom.op is Op.MOD:
        return _remainder(solver, Op.LE, atom, limit)
    raise solver.fail()


def _at_least(solver: Solver, atom: Term, limit: Term) -> Term:
    if atom.op is Op.FLOORDIV:
        return _quotient(solver, atom, limit, boolean.ge, boolean.le)
    if atom.op is Op.MIN or atom.op is Op.MAX:
        parts = [solver.solve(boolean.ge(part, limit)) for part in atom.args]
        return boolean.and_(*parts) if atom.op is Op.MIN else boolean.or_(*parts)
    if atom.op is Op.MOD:
        return _remainder(solver, Op.LE, atom, limit, least=True)
    raise solver.fail()


def _quotient(
    solver: Solver,
    quotient: Term,
    limit: Term,
    above: Callable[..., Term],
    below: Callable[..., Term],
) -> Term:
    """The dividend compared with ``divisor * limit``: one way for a positive divisor, the other for
    a negative.
    """
    dividend, divisor = quotient.args
    bound = arithmetic.mul(divisor, limit)
    return boolean.or_(
        solver.where(boolean.ge(divisor, 1), lambda inner: inner.solve(above(dividend, bound))),
        solver.where(boolean.le(divisor, -1), lambda inner: inner.solve(below(dividend, bound))),
    )


def _equal(solver: Solver, atom: Term, value: Term) -> Term:
    if atom.op is Op.MOD:
        return _remainder(solver, Op.EQ, atom, value)
    return boolean.and_(_at_most(solver, atom, value), _at_least(solver, atom, value))


def _modulus(solver: Solver, atom: Term) -> Term | None:
    """The divisor of a remainder whose dividend is a multiple of the symbol and something without
    it.
    """
    dividend, divisor = atom.args
    _, items = arithmetic.split(dividend)
    inside = [(m, c) for m, c in items if solver.symbol in m.symbols]
    if solver.symbol in divisor.symbols or len(inside) != 1 or inside[0][0] is not solver.symbol:
        return None
    return divisor  # type: ignore[no-any-return]


def _remainder(solver: Solver, op: Op, atom: Term, value: Term, *, least: bool = False) -> Term:
    """``(c*symbol + rest) % n`` compared with ``value``; ``least``: it is at least the value."""
    divisor = _modulus(solver, atom)
    if divisor is None:
        raise solver.fail()
    constant, items = arithmetic.split(atom.args[0])
    c = dict(items)[solver.symbol]
    rest = arithmetic.linear(constant, {m: k for m, k in items if m is not solver.symbol})
    if c == 1 and rest is arithmetic.ZERO:
        return boolean.ge(atom, value) if least else compared(op, atom - value)
    if op is Op.LE:
        raise solver.fail()
    inverse = c
    if divisor.op is Op.CONST and gcd(c, divisor.value) == 1:
        inverse = pow(c, -1, abs(divisor.value))
    elif c not in (1, -1):
        raise solver.fail()
    wanted = division.mod(arithmetic.scale(value - rest, inverse), divisor)
    alone = division.mod(solver.symbol, divisor)

    def positive(inner: Solver) -> Term:
        return _within(inner, op, alone - wanted, boolean.le(0, value), boolean.lt(value, divisor))

    def negative(inner: Solver) -> Term:
        return _within(inner, op, alone - wanted, boolean.ge(0, value), boolean.gt(value, divisor))

    return boolean.or_(
        solver.where(boolean.ge(divisor, 1), positive),
        solver.where(boolean.le(divisor, -1), negative),
    )


def _within(solver: Solver, op: Op, zero: Term, *limits: Term) -> Term:
    """``zero`` compared with 0, for an equation that only holds within limits; they are told if not
    known.
    """
    told = [c for c in limits if ask(solver.facts, c, effort=Effort.CHEAP, only=True) is not True]
    if op is Op.EQ:
        return boolean.and_(*told, compared(op, zero))
    return boolean.or_(*map(boolean.not_, told), compared(op, zero))


def compared(op: Op, zero: Term) -> Term:
    """A term compared with 0, by the operation of a relation.

    >>> from guards.terms.arithmetic import symbol
    >>> compared(Op.NE, symbol("s") - 3), compared(Op.LE, symbol("s") - 3)
    (<s != 3>, <s <= 3>)
    """
    return {Op.LE: boolean.le, Op.EQ: boolean.eq, Op.NE: boolean.ne}[op](zero, 0)


def replaced(relation: Term, replacements: dict[Term, Term]) -> Term:
    """The relation with parts replaced; where that makes it undefined it does not hold."""
    try:
        return fold.substitute(relation, replacements)
    except ZeroDivisionError:
        return FALSE
