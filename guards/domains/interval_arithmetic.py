"""The range domain: what values a term can have, as a pair of bounds.

The functions here work on plain pairs ``(lo, hi)`` in which None means unbounded;
:class:`guards.domains.interval.Interval` is the public face of such a pair. Every function returns
an interval that contains all values that its operands allow.
"""

from __future__ import annotations

Pair = tuple[int | None, int | None]

EVERYTHING: Pair = (None, None)
SIZES: Pair = (0, None)


def meet(a: Pair, b: Pair) -> Pair:
    """The values in both."""
    lo = a[0] if b[0] is None else b[0] if a[0] is None or a[0] < b[0] else a[0]
    hi = a[1] if b[1] is None else b[1] if a[1] is None or a[1] > b[1] else a[1]
    return lo, hi


def hull(a: Pair, b: Pair) -> Pair:
    """The least interval around both."""
    lo = None if a[0] is None or b[0] is None else min(a[0], b[0])
    hi = None if a[1] is None or b[1] is None else max(a[1], b[1])
    return lo, hi


def scaled(pair: Pair, factor: int) -> Pair:
    """``factor * x``"""
    lo, hi = pair
    if factor > 0:
        return None if lo is None else lo * factor, None if hi is None else hi * factor
    if factor == 0:
        return 0, 0
    return None if hi is None else hi * factor, None if lo is None else lo * factor


def product(a: Pair, b: Pair) -> Pair:
    """``x * y`` for independent ``x`` and ``y``"""
    a_lo, a_hi = a
    b_lo, b_hi = b
    if a_lo is not None and b_lo is not None and a_lo >= 0 and b_lo >= 0:  # by far the most common
        if a_hi is None or b_hi is None:
            hi = 0 if a_hi == 0 or b_hi == 0 else None
        else:
            hi = a_hi * b_hi
        return a_lo * b_lo, hi
    corners = [_corner(x, y) for x in _ends(a) for y in _ends(b)]
    lowest, highest = min(corners), max(corners)
    return None if lowest[0] else lowest[1], None if highest[0] else highest[1]


# (0, a number), or (-1, 0) and (1, 0) for the infinities: they compare as they should
_End = tuple[int, int]


def _ends(pair: Pair) -> tuple[_End, _End]:
    lo, hi = pair
    return (-1, 0) if lo is None else (0, lo), (1, 0) if hi is None else (0, hi)


def _corner(x: _End, y: _End) -> _End:
    if not x[0] and not y[0]:
        return 0, x[1] * y[1]
    if x == (0, 0) or y == (0, 0):
        return 0, 0  # an infinite bound times zero is zero
    return (1, 0) if (x > (0, 0)) is (y > (0, 0)) else (-1, 0)


def add(a: Pair, b: Pair) -> Pair:
    """``x + y``"""
    return None if a[0] is None or b[0] is None else a[0] + b[0], None if a[1] is None or b[
        1
    ] is None else a[1] + b[1]


def negated(pair: Pair) -> Pair:
    """``-x``"""
    lo, hi = pair
    return None if hi is None else -hi, None if lo is None else -lo


def power(a: Pair, exponent: int) -> Pair:
    """``x ** exponent`` for a positive exponent (the product of equal factors, not of independent
    ones)
    """
    lo, hi = a
    if exponent % 2 or (lo is not None and lo >= 0):
        return None if lo is None else lo**exponent, None if hi is None else hi**exponent
    if hi is not None and hi <= 0:
        return power(negated(a), exponent)
    return 0, None if lo is None or hi is None else max(-lo, hi) ** exponent


def floordiv(a: Pair, b: Pair) -> Pair:
    """``x // y`` for independent ``x`` and ``y != 0``"""
    lo, hi = b
    if lo == 0 and hi == 0:
        return EVERYTHING  # defined nowhere
    if lo is not None and lo >= 0:
        return _divided(a, (max(lo, 1), hi))
    if hi is not None and hi <= 0:
        return _divided(negated(a), negated((lo, min(hi, -1))))
    return hull(_divided(a, (1, hi)), _divided(negated(a), negated((lo, -1))))


def _divided(a: Pair, b: Pair) -> Pair:
    """``x // y`` for ``y >= 1``"""
    lo, hi = a
    least, most = b
    assert least is not None
    if most is not None and most < least:
        return EVERYTHING  # defined nowhere
    if lo is not None:
        lo = lo // least if lo < 0 else 0 if most is None else lo // most
    if hi is not None:
        hi = hi // least if hi >= 0 else -1 if most is None else hi // most
    return lo, hi


def mod(a: Pair, b: Pair) -> Pair:
    """``x % y`` for independent ``x`` and ``y != 0``"""
    lo, hi = b
    if lo == 0 and hi == 0:
        return EVERYTHING  # defined nowhere
    if lo is not None and lo >= 0:
        return _remainder(a, (max(lo, 1), hi))
    if hi is not None and hi <= 0:
        return negated(_remainder(negated(a), negated((lo, min(hi, -1)))))
    return hull(_remainder(a, (1, hi)), negated(_remainder(negated(a), negated((lo, -1)))))


def _remainder(a: Pair, b: Pair) -> Pair:
    """``x % y`` for ``y >= 1``"""
    lo, hi = a
    least, most = b
    assert least is not None
    if lo is not None and hi is not None:
        if lo >= 0 and hi < least:
            return a
        if least == most and lo // least == hi // least:
            return lo % least, hi % least
    top = None if most is None else most - 1
    if lo is not None and lo >= 0 and hi is not None:
        top = hi if top is None else min(top, hi)
    return 0, top


def some_value(pair: Pair) -> int:
    """A value of a range that is not empty: its lower end, and without one what is nearest to 0.

    >>> some_value((3, None)), some_value((None, -2)), some_value((None, 8))
    (3, -2, 0)
    """
    lo, hi = pair
    return lo if lo is not None else hi if hi is not None and hi < 0 else 0
