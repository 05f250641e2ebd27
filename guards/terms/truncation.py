"""Division that rounds towards zero, as in C, in a normal form, and then as a choice between
Python's two roundings.

With ``T(a, b)`` for the quotient and ``R(a, b)`` for the remainder (which has the sign of ``a``),
all integers obey, wherever the left side is defined::

    T(-a, b) == T(a, -b) == -T(a, b)        R(-a, b) == -R(a, b)
    T(g*a, g*b) == T(a, b)                  R(a, -b) == R(a, b)
    T(T(a, b), c) == T(a, b*c)              R(g*a, g*b) == g*R(a, b)
    T(R(a, b*c), b) == R(T(a, b), c)        R(R(a, b*c), b) == R(a, b)
"""

from __future__ import annotations

from collections.abc import Callable

from guards.terms import arithmetic, boolean, division
from guards.terms.term import Op, Term

Made = dict[Term, tuple[bool, Term, Term]]
"""For each term made here: whether it is a remainder, its dividend and its divisor."""


def quotient(a: Term, b: Term, made: Made) -> Term:
    """``a / b`` rounded towards zero; ``made`` remembers the terms that this module has made.

    >>> from guards.terms.arithmetic import symbol
    >>> x, y = symbol("x"), symbol("y")
    >>> quotient(x, arithmetic.const(8), {})
    <(x//8 if x >= 0 else (x + 7)//8)>
    >>> quotient(6 * x * y, -3 * y, {})
    <-2*x>
    """
    if b is arithmetic.ZERO:
        raise ZeroDivisionError(f"{a} / 0")
    if a is arithmetic.ZERO:
        return a
    a, b, _, _ = arithmetic.cancel(a, b)
    a, b, sign = _signs(a, b)
    if a is b or b is arithmetic.ONE or (a.op is Op.CONST and b.op is Op.CONST):
        return arithmetic.scale(_constant(a, b), sign)
    before = made.get(a)
    if before is not None:
        by_remainder, dividend, divisor = before
        if not by_remainder:
            return arithmetic.scale(quotient(dividend, arithmetic.mul(divisor, b), made), sign)
        rest = _divided(divisor, b)
        if rest is not None:
            return arithmetic.scale(remainder(quotient(dividend, b, made), rest, made), sign)
    result = _chosen(a, b, division.floordiv)
    made[result] = False, a, b
    return arithmetic.scale(result, sign)


def remainder(a: Term, b: Term, made: Made) -> Term:
    """Return the remainder that belongs to ``quotient``: ``a - b*quotient(a, b)``, with the sign of
    ``a``.

    >>> from guards.terms.arithmetic import symbol
    >>> remainder(symbol("x"), arithmetic.const(-8), {})
    <(x % 8 if x >= 0 else -((-x) % 8))>
    """
    if b is arithmetic.ZERO:
        raise ZeroDivisionError(f"{a} % 0")
    if a is arithmetic.ZERO:
        return a
    a, b, atoms, number = arithmetic.cancel(a, b)
    outer = arithmetic.scale(arithmetic.monomial(atoms), -number if _leads_negative(a) else number)
    a, b, _ = _signs(a, b)
    if a is b or b is arithmetic.ONE or (a.op is Op.CONST and b.op is Op.CONST):
        return arithmetic.mul(outer, arithmetic.sub(a, arithmetic.mul(b, _constant(a, b))))
    before = made.get(a)
    if before is not None and before[0] and _divided(before[2], b) is not None:
        return arithmetic.mul(outer, remainder(before[1], b, made))
    result = _chosen(a, b, division.mod)
    made[result] = True, a, b
    return arithmetic.mul(outer, result)


def _leads_negative(term: Term) -> bool:
    constant, items = arithmetic.split(term)
    return items[0][1] < 0 if items else constant < 0


def _signs(a: Term, b: Term) -> tuple[Term, Term, int]:
    """The operands with a positive first coefficient, and the sign of the quotient that this takes
    out.
    """
    sign = 1
    if _leads_negative(a):
        a, sign = arithmetic.scale(a, -1), -sign
    if _leads_negative(b):
        b, sign = arithmetic.scale(b, -1), -sign
    return a, b, sign


def _constant(a: Term, b: Term) -> Term:
    """The quotient by itself, by 1, or of numbers that are not negative."""
    return division.floordiv(a, b)


def _divided(term: Term, by: Term) -> Term | None:
    """``term / by`` where that is exact and plain to see."""
    rest, divisor, _, _ = arithmetic.cancel(term, by)
    return rest if divisor is arithmetic.ONE else None


def _chosen(a: Term, b: Term, divide: Callable[[Term, Term], Term]) -> Term:
    """``divide(a, b)`` for operands of the same sign, and ``-divide(-a, b)`` otherwise."""
    same, other = divide(a, b), arithmetic.scale(divide(arithmetic.scale(a, -1), b), -1)
    up = boolean.ge(a, 0)
    # By 0 there is nothing to choose: so what is known not to be negative is taken for positive.
    return boolean.ite(boolean.ge(b, 0), boolean.ite(up, same, other), boolean.ite(up, other, same))
