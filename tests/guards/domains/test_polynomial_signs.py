"""Signs of polynomials in remainder classes against the sign at each value."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from guards.domains.polynomial import polynomial, value_at
from guards.domains.polynomial_signs import SignRun, sign_runs


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
