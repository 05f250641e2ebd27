"""Polynomials against plain arithmetic at many points."""

from __future__ import annotations

import random
from fractions import Fraction

from guards.domains.polynomial import (
    Poly,
    period,
    polynomial,
    product,
    quotient,
    value_at,
    weighted_sum,
)


def _random(rng: random.Random, degree: int = 3) -> Poly:
    return polynomial(
        *(
            Fraction(rng.randint(-6, 6), rng.choice((1, 1, 2, 3)))
            for _ in range(rng.randint(0, degree + 1))
        )
    )


def test_values_of_sums_and_products() -> None:
    rng = random.Random(71)
    for _ in range(300):
        a, b = _random(rng), _random(rng)
        constant, weights = rng.randint(-5, 5), (rng.randint(-3, 3), rng.randint(-3, 3))
        total, times = weighted_sum(constant, weights, (a, b)), product(a, b)
        assert total is not None
        assert times is not None
        for poly in (total, times):
            assert not poly or poly[-1] != 0
        for x in range(-5, 6):
            at_a, at_b = value_at(a, x), value_at(b, x)
            assert at_a == sum(c * x**k for k, c in enumerate(a))
            assert value_at(total, x) == constant + weights[0] * at_a + weights[1] * at_b
            assert value_at(times, x) == at_a * at_b


def test_what_is_not_defined_stays_so() -> None:
    assert weighted_sum(1, (1, 2), (polynomial(1), None)) is None
    assert product(None, polynomial(0)) is None
    assert product() == polynomial(1)


def test_quotients_leave_less_than_the_divisor() -> None:
    rng = random.Random(72)
    for _ in range(300):
        dividend, divisor = _random(rng, 4), _random(rng, 2)
        if not divisor:
            continue
        whole = quotient(dividend, divisor)
        rest = weighted_sum(0, (1, -1), (dividend, product(whole, divisor)))
        assert rest is not None
        assert len(rest) < len(divisor)


def test_a_polynomial_repeats_after_its_period() -> None:
    rng = random.Random(73)
    for _ in range(200):
        a, b, c = (rng.randint(-5, 5) for _ in range(3))
        poly = polynomial(c, b + Fraction(a, 2), Fraction(a, 2))  # c + b*x + a*x*(x + 1)/2
        number = rng.choice((1, 2, 3, 4, 6, -5))
        steps = period(poly, number)
        for x in range(-6, 7):
            assert (value_at(poly, x + steps) - value_at(poly, x)) % number == 0, (poly, number, x)
