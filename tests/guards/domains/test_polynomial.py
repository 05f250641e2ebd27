"""Polynomials against plain arithmetic at many points."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from guards.domains.polynomial import (
    Poly,
    SignRun,
    period,
    polynomial,
    product,
    quotient,
    sign_runs,
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


# -- signs -----------------------------------------------------------------------------------------


def _told(runs: list[SignRun], value: int) -> int:
    return next(sign for last, sign in runs if last is None or value <= last)


@pytest.mark.parametrize("ends", [(-30, 30), (0, None), (None, 12), (None, None), (5, 5)])
def test_every_value_has_its_sign(ends: tuple[int | None, int | None]) -> None:
    rng = random.Random(81)
    lo, hi = ends
    changes = 0
    for _ in range(200):
        poly = polynomial(
            *(Fraction(rng.randint(-40, 40), rng.choice((1, 2))) for _ in range(rng.randint(0, 5)))
        )
        modulus = rng.choice((1, 2, 3, 7))
        rest = rng.randrange(modulus)
        runs = sign_runs(poly, modulus, rest, lo, hi)
        members = [
            value
            for value in [*range(-60, 61), -(10**6) + rest, 10**6 + rest]
            if value % modulus == rest
            and (lo is None or lo <= value)
            and (hi is None or value <= hi)
        ]
        assert bool(runs) or not members
        for value in members:
            exact = value_at(poly, value)
            assert _told(runs, value) == (exact > 0) - (exact < 0), (poly, modulus, rest, value)
        lasts = [last for last, _ in runs]
        assert all(last is not None for last in lasts[:-1])
        assert lasts == sorted(lasts, key=lambda last: (last is None, last or 0))
        changes += len(runs) > 1
    assert changes > 30 or ends == (5, 5)


def test_close_roots_and_far_ones_are_exact() -> None:
    poly = polynomial(10**12 * (10**12 + 1), -(2 * 10**12 + 1), 1)  # (x - 10**12)*(x - 10**12 - 1)
    assert sign_runs(poly, 1, 0, 0, None) == [(10**12 - 1, 1), (10**12 + 1, 0), (None, 1)]
