"""Bitwise operations on integers of any size (two's complement, as in Python) as quotients and
remainders.

Each function returns None where there is no such formula: one operand must be a constant with few
runs of bits.
"""

from __future__ import annotations

from guards.terms import arithmetic, division
from guards.terms.term import Op, Term

MOST_RUNS = 64  # of set bits in a constant: each becomes one quotient


def both(a: Term, b: Term) -> Term | None:
    """Return ``a & b`` as a term without bit operators; None if there is no such term.

    >>> from guards.terms.arithmetic import const, symbol
    >>> x = symbol("x")
    >>> both(x, const(7)), both(x, const(6)), both(x, const(-8))
    (<x % 8>, <2*((x//2) % 4)>, <x - x % 8>)
    """
    if a is b:
        return a
    if b.op is not Op.CONST:
        if a.op is not Op.CONST:
            return None
        a, b = b, a
    mask: int = b.args[0]
    if a.op is Op.CONST:
        return arithmetic.const(a.args[0] & mask)
    if mask >= 0:
        return _masked(a, mask)
    rest = _masked(a, ~mask)
    return None if rest is None else arithmetic.sub(a, rest)


def _masked(a: Term, mask: int) -> Term | None:
    """``a & mask`` for a mask that is not negative: the bits of each run, moved down, cut off, and
    moved back.
    """
    parts: list[Term] = []
    low = 0
    while mask >> low:
        if not mask >> low & 1:
            low += 1
            continue
        high = low + 1
        while mask >> high & 1:
            high += 1
        if len(parts) == MOST_RUNS:
            return None
        parts.append(
            arithmetic.scale(
                division.mod(division.floordiv(a, 1 << low), 1 << (high - low)), 1 << low
            )
        )
        low = high
    return arithmetic.total(parts)


def either(a: Term, b: Term) -> Term | None:
    """``a | b``, which is ``a + b - (a & b)``"""
    shared = both(a, b)
    return None if shared is None else arithmetic.sub(arithmetic.add(a, b), shared)


def differing(a: Term, b: Term) -> Term | None:
    """``a ^ b``, which is ``a + b - 2*(a & b)``"""
    shared = both(a, b)
    return (
        None
        if shared is None
        else arithmetic.sub(arithmetic.add(a, b), arithmetic.scale(shared, 2))
    )
