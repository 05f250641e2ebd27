"""Floor division and remainder as Python has them: whole parts come out, common factors cancel,
nested ones merge.
"""

from __future__ import annotations

from math import gcd

from guards.terms.arithmetic import (
    ONE,
    ZERO,
    add,
    cancel,
    const,
    integer,
    linear,
    monomial,
    mul,
    plus,
    scale,
    split,
    sub,
    summed,
)
from guards.terms.overloading import computed_by
from guards.terms.term import IntLike, Monomials, Op, Term, intern

# The members used on hot paths, looked up once.
_CONST, _FLOORDIV, _MOD = Op.CONST, Op.FLOORDIV, Op.MOD


def floordiv(a: IntLike, b: IntLike) -> Term:
    """``a // b``, rounded down.

    Raises:
        ZeroDivisionError: ``b`` is the constant 0.
    """
    a, b = integer(a), integer(b)
    if b.op is _CONST:
        return _divided(a, b.args[0])
    if a is ZERO:
        return a
    if a is b:
        return ONE
    a, b, _, _ = cancel(a, b)
    if b.op is _CONST:
        return _divided(a, b.args[0])
    return ZERO if a is ZERO else ONE if a is b else intern(_FLOORDIV, (a, b))


def _reduced(a: Term, divisor: int) -> tuple[int, Monomials, bool]:
    """Constant and items of ``a`` without whole multiples of a positive divisor, and whether there
    were any.

    The constant becomes one of 0 to divisor - 1; coefficients keep their sign, as ``(x - y) // 8``
    is easier to read than ``(x + 7*y) // 8 - y``.
    """
    constant, items = split(a)
    if 0 <= constant < divisor:
        for _, c in items:
            if not -divisor < c < divisor:
                break
        else:
            return constant, items, False
    rest = [(m, c % divisor if c >= 0 else -(-c % divisor)) for m, c in items]
    return constant % divisor, tuple([item for item in rest if item[1]]), True


def _divided(a: Term, divisor: int) -> Term:
    """``a // divisor``: whole parts come out, common factors cancel, nested divisions merge, the
    first sign is plus.
    """
    if divisor == 1:
        return a
    if divisor <= 0:
        if not divisor:
            raise ZeroDivisionError(f"{a} // 0")
        return _divided(scale(a, -1), -divisor)
    constant, items, changed = _reduced(a, divisor)
    if not items:
        rest = const(constant // divisor)
    elif items[0][1] < 0:  # a // d == -((-a + d - 1) // d)
        rest = scale(
            _divided(summed(divisor - 1 - constant, tuple([(m, -c) for m, c in items])), divisor),
            -1,
        )
    else:
        shared = gcd(divisor, *[c for _, c in items])
        # the constant's remainder cannot carry: (g*x + c) // (g*d) == (x + c//g) // d
        if shared > 1:
            rest = _divided(
                linear(constant // shared, {m: c // shared for m, c in items}), divisor // shared
            )
        else:
            merged = _merged(constant, items, divisor)
            if merged is None:
                merged = intern(
                    _FLOORDIV, (summed(constant, items) if changed else a, const(divisor))
                )
            rest = merged
    if not changed:
        return rest
    whole, parts = split(a)
    return plus(linear(whole // divisor, {m: _quotient(c, divisor) for m, c in parts}), rest, 1)


def _quotient(value: int, divisor: int) -> int:
    return value // divisor if value >= 0 else -(-value // divisor)


def _merged(constant: int, items: Monomials, divisor: int) -> Term | None:
    """``(x//b + c) // d`` as ``(x + b*c) // (b*d)``, where the dividend is of that form."""
    if len(items) == 1 and items[0][1] == 1 and items[0][0].op is _FLOORDIV:
        inner, by = items[0][0].args
        if by.op is _CONST:
            return _divided(plus(inner, const(by.args[0] * constant), 1), by.args[0] * divisor)
    return None


def mod(a: IntLike, b: IntLike) -> Term:
    """``a % b``, with the sign of ``b``.

    Raises:
        ZeroDivisionError: ``b`` is the constant 0.
    """
    a, b = integer(a), integer(b)
    if b.op is _CONST:
        return _remainder(a, b.args[0])
    if a is ZERO or a is b:
        return ZERO
    a, b, atoms, number = cancel(a, b)
    if b.op is _CONST:
        rest = _remainder(a, b.args[0])
    else:
        rest = ZERO if a is b or a is ZERO else intern(_MOD, (a, b))
    return scale(mul(rest, monomial(atoms)), number) if atoms or number != 1 else rest


def _remainder(a: Term, divisor: int) -> Term:
    """``a % divisor``: multiples vanish, common factors come out, nested remainders merge."""
    if divisor <= 1:
        if divisor == 1:
            return ZERO
        if not divisor:
            raise ZeroDivisionError(f"{a} % 0")
        return scale(_remainder(scale(a, -1), -divisor), -1)
    constant, items, changed = _reduced(a, divisor)
    if not items:
        return const(constant)
    shared = gcd(divisor, *[c for _, c in items])
    if shared > 1:  # (g*x + c) % (g*d) == g*((x + c//g) % d) + c % g
        inner = linear(constant // shared, {m: c // shared for m, c in items})
        return plus(
            scale(_remainder(inner, divisor // shared), shared), const(constant % shared), 1
        )
    if changed:
        a = summed(constant, items)
    if len(items) == 1 and not constant and items[0][1] == 1 and items[0][0].op is _MOD:
        inner, by = items[0][0].args
        if by.op is _CONST and by.args[0] % divisor == 0:
            return _remainder(inner, divisor)
    return intern(_MOD, (a, const(divisor)))


computed_by(add, sub, mul, floordiv, mod)
