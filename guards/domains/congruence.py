"""The remainder domain: ``value == rest (mod modulus)``; modulus 0 means that the value is exactly
``rest``.
"""

from __future__ import annotations

from math import gcd

import attrs

Class = tuple[int, int]  # (modulus, rest), 0 <= rest < modulus unless modulus is 0

ANY: Class = (1, 0)


@attrs.frozen
class Congruence:
    """All integers that leave ``rest`` when divided by ``modulus`` (just ``rest`` for modulus 0).

    >>> 11 in Congruence(8, 3), 12 in Congruence(8, 3), 4 in Congruence(0, 4)
    (True, False, True)
    """

    modulus: int = 1
    rest: int = 0

    def __contains__(self, value: int) -> bool:
        return value == self.rest if self.modulus == 0 else (value - self.rest) % self.modulus == 0


def of(modulus: int, rest: int) -> Class:
    """The class of ``rest`` modulo ``modulus``, normalised."""
    modulus = abs(modulus)
    return (modulus, rest % modulus) if modulus else (0, rest)


def add(a: Class, b: Class) -> Class:
    """``x + y``"""
    return of(gcd(a[0], b[0]), a[1] + b[1])


def scaled(a: Class, factor: int) -> Class:
    """``factor * x``"""
    return of(a[0] * factor, a[1] * factor)


def product(a: Class, b: Class) -> Class:
    """``x * y``"""
    return of(gcd(a[0] * b[0], a[0] * b[1], b[0] * a[1]), a[1] * b[1])


def hull(a: Class, b: Class) -> Class:
    """The least class around both."""
    return of(gcd(a[0], b[0], a[1] - b[1]), a[1])


def floordiv(a: Class, divisor: int) -> Class:
    """``x // divisor`` for a constant divisor"""
    if a[0] == 0:
        return 0, a[1] // divisor
    return of(a[0] // divisor, a[1] // divisor) if a[0] % divisor == 0 else ANY


def mod(a: Class, divisor: int) -> Class:
    """``x % divisor`` for a constant divisor"""
    if a[0] % divisor == 0:
        return 0, a[1] % divisor
    return of(gcd(a[0], divisor), a[1])


def meets(a: Class, value: int) -> bool:
    """Return whether ``value`` is in the class."""
    return value == a[1] if a[0] == 0 else (value - a[1]) % a[0] == 0
