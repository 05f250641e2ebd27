"""Every operation on ranges against all values of small ranges."""

from __future__ import annotations

import random

import pytest

from guards.domains import interval_arithmetic
from guards.domains.interval import Interval
from guards.domains.interval_arithmetic import Pair, some_value


def _random(rng: random.Random) -> Pair:
    lo = rng.choice([None, *range(-6, 7)])
    hi = rng.choice([None, *range(-6, 7)])
    return (hi, lo) if lo is not None and hi is not None and lo > hi else (lo, hi)


def _values(pair: Pair) -> range:
    lo, hi = pair
    return range(-9 if lo is None else lo, (9 if hi is None else hi) + 1)


def test_results_contain_all_values() -> None:
    rng = random.Random(5)
    for _ in range(2500):
        a, b = _random(rng), _random(rng)
        factor = rng.randint(-3, 3)
        product, total = (
            Interval(*interval_arithmetic.product(a, b)),
            Interval(*interval_arithmetic.add(a, b)),
        )
        quotient, rest = (
            Interval(*interval_arithmetic.floordiv(a, b)),
            Interval(*interval_arithmetic.mod(a, b)),
        )
        both, either = (
            Interval(*interval_arithmetic.meet(a, b)),
            Interval(*interval_arithmetic.hull(a, b)),
        )
        scaled, negated = (
            Interval(*interval_arithmetic.scaled(a, factor)),
            Interval(*interval_arithmetic.negated(a)),
        )
        powers = {k: Interval(*interval_arithmetic.power(a, k)) for k in (1, 2, 3)}
        for x in _values(a):
            assert factor * x in scaled
            assert -x in negated
            assert all(x**k in power for k, power in powers.items())
            assert (x in both) is (x in Interval(*b))
            assert x in either
            for y in _values(b):
                assert x * y in product
                assert x + y in total
                if y:
                    assert x // y in quotient
                    assert x % y in rest


@pytest.mark.parametrize(
    ("operation", "a", "b", "wanted"),
    [
        (interval_arithmetic.product, (1, 3), (2, 5), (2, 15)),
        (interval_arithmetic.product, (-2, 3), (-5, 4), (-15, 12)),
        (interval_arithmetic.product, (0, None), (0, 0), (0, 0)),
        (interval_arithmetic.product, (2, None), (3, None), (6, None)),
        (interval_arithmetic.product, (10**400, None), (-1, None), (None, None)),
        (interval_arithmetic.floordiv, (0, 63), (8, 8), (0, 7)),
        (interval_arithmetic.floordiv, (5, None), (2, 4), (1, None)),
        (interval_arithmetic.floordiv, (-7, -1), (2, None), (-4, -1)),
        (interval_arithmetic.mod, (0, 5), (8, 8), (0, 5)),
        (interval_arithmetic.mod, (17, 19), (8, 8), (1, 3)),
        (interval_arithmetic.mod, (None, None), (8, 8), (0, 7)),
        (interval_arithmetic.mod, (0, None), (-4, -4), (-3, 0)),
        (interval_arithmetic.floordiv, (1, 2), (0, 0), (None, None)),
    ],
)
def test_results_are_tight(operation: object, a: Pair, b: Pair, wanted: Pair) -> None:
    assert operation(a, b) == wanted  # type: ignore[operator]


def test_some_value_is_one_of_the_range() -> None:
    for lo in (None, -4, 0, 3):
        for hi in (None, -4, -1, 0, 3, 9):
            if lo is not None and hi is not None and lo > hi:
                continue
            value = some_value((lo, hi))
            assert lo is None or lo <= value
            assert hi is None or value <= hi
            assert lo is not None or abs(value) <= abs(hi or 0)
    assert some_value((-4, 9)) == -4
