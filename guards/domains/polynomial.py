"""Polynomials of one integer with rational coefficients: sums, products, quotients, values,
periods.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

Poly = tuple[Fraction, ...]  # coefficients from the constant on, the last of them not 0


def polynomial(*coefficients: int | Fraction) -> Poly:
    """The polynomial with these coefficients, from the constant on."""
    found = [Fraction(c) for c in coefficients]
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def weighted_sum(
    constant: int, weights: Sequence[int], polys: Sequence[Poly | None]
) -> Poly | None:
    """``constant`` and the polynomials, each times its weight; None where one of them is not
    defined.
    """
    total: list[Fraction] = [Fraction(constant)]
    for weight, poly in zip(weights, polys, strict=True):
        if poly is None:
            return None
        total += [Fraction(0)] * (len(poly) - len(total))
        for index, c in enumerate(poly):
            total[index] += weight * c
    return polynomial(*total)


def product(*polys: Poly | None) -> Poly | None:
    """The product of polynomials; None where one of them is not defined."""
    result = polynomial(1)
    for poly in polys:
        if poly is None:
            return None
        made = [Fraction(0)] * max(0, len(result) + len(poly) - 1)
        for i, a in enumerate(result):
            for j, b in enumerate(poly):
                made[i + j] += a * b
        result = polynomial(*made)
    return result


def quotient(dividend: Poly, divisor: Poly) -> Poly:
    """Polynomial division, the remainder dropped."""
    left = list(dividend)
    made = [Fraction(0)] * max(0, len(left) - len(divisor) + 1)
    for index in reversed(range(len(made))):
        made[index] = c = left[index + len(divisor) - 1] / divisor[-1]
        for offset, d in enumerate(divisor):
            left[index + offset] -= c * d
    return polynomial(*made)


def value_at(poly: Poly, value: int) -> Fraction:
    """The value of a polynomial.

    >>> value_at((Fraction(1), Fraction(0), Fraction(2)), 3)
    Fraction(19, 1)
    """
    result = Fraction(0)
    for c in reversed(poly):
        result = result * value + c
    return result


def period(poly: Poly, number: int) -> int:
    """After how many steps of its argument an integer-valued polynomial repeats modulo
    ``number``.
    """
    below = lcm(*(c.denominator for c in poly)) if poly else 1
    modulus = below * abs(number)
    return modulus // gcd(modulus, *(int(c * below) for c in poly[1:]))
