"""Polynomials of one integer with rational coefficients: sums, products, quotients, values,
periods, and exact signs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
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


# -- signs on a remainder class --------------------------------------------------------------------
#
# A polynomial changes its sign at most once while it only rises or only falls. Where it rises and
# falls is the sign of its differences, a polynomial of one degree less. No root is ever
# approximated.


SignRun = tuple[int | None, int]  # up to which value, inclusive, and the sign there: -1, 0 or 1


def sign_runs(poly: Poly, modulus: int, rest: int, lo: int | None, hi: int | None) -> list[SignRun]:
    """The sign of a polynomial on runs of the integers from ``lo`` to ``hi`` that are ``rest``
    modulo ``modulus``.
    """
    below = lcm(*(c.denominator for c in poly)) if poly else 1
    scaled = [int(c * below) for c in poly]
    inner: list[int] = []  # the same in k, for rest + modulus * k
    for c in reversed(scaled):
        shifted = [0] * (len(inner) + 1)
        for index, d in enumerate(inner):
            shifted[index] += d * rest
            shifted[index + 1] += d * modulus
        shifted[0] += c
        inner = shifted
    first = None if lo is None else -((rest - lo) // modulus)
    last = None if hi is None else (hi - rest) // modulus
    if first is not None and last is not None and first > last:
        return []
    while inner and not inner[-1]:
        inner.pop()
    runs = _integer_signs(inner, first, last)
    return [
        (hi if end is None or end == last else rest + modulus * end, sign) for end, sign in runs
    ]


def _value(poly: Sequence[int], k: int) -> int:
    result = 0
    for c in reversed(poly):
        result = result * k + c
    return result


def _integer_signs(poly: Sequence[int], lo: int | None, hi: int | None) -> list[SignRun]:
    """The sign on runs from ``lo`` to ``hi``, exactly: between two values it changes where the
    differences do not.
    """
    if len(poly) < 2:
        c = poly[0] if poly else 0
        return [(hi, (c > 0) - (c < 0))]
    runs: list[SignRun] = []
    start = lo
    for end, direction in _integer_signs(_difference(poly), lo, hi):
        for last, sign in _monotone(poly, start, end, direction >= 0):
            if runs and runs[-1][1] == sign:
                runs.pop()
            runs.append((last, sign))
        start = None if end is None else end + 1
    return runs


def _difference(poly: Sequence[int]) -> list[int]:
    """``p(k + 1) - p(k)``"""
    made = [0] * (len(poly) - 1)
    row = [1]
    for power, c in enumerate(poly):
        for index in range(power):
            made[index] += c * row[index]
        row = [1, *(a + b for a, b in pairwise(row)), 1]
    return made


def _monotone(poly: Sequence[int], lo: int | None, hi: int | None, rising: bool) -> list[SignRun]:
    """Return the runs of :func:`_integer_signs` for a polynomial whose values only rise or only
    fall.
    """
    sign = 1 if rising else -1
    zero = _first(lambda k: sign * _value(poly, k) >= 0, lo, hi)
    beyond = _first(lambda k: sign * _value(poly, k) > 0, lo, hi)
    runs: list[SignRun] = []
    if zero is None:  # never reached
        return [(hi, -sign)]
    if lo is None or zero > lo:
        runs.append((zero - 1, -sign))
    if beyond is None:
        return [*runs, (hi, 0)]
    if beyond > zero:
        runs.append((beyond - 1, 0))
    return [*runs, (hi, sign)]


def _first(holds: Callable[[int], bool], lo: int | None, hi: int | None) -> int | None:
    """The first integer from ``lo`` to ``hi`` from which on something holds; it does at an end that
    is open above.
    """
    if hi is not None and not holds(hi):
        return None
    step = 1
    if hi is None:
        hi = lo if lo is not None else 0
        while not holds(hi):
            lo, hi, step = hi + 1, hi + step, 2 * step
    if lo is None:
        step = 1
        lo = hi
        while holds(lo):
            hi, lo, step = lo, lo - step, 2 * step
        lo += 1
    while lo < hi:  # it holds at hi
        middle = (lo + hi) // 2
        if holds(middle):
            hi = middle
        else:
            lo = middle + 1
    return hi
