"""Every operation on remainder classes against sampled members."""

from __future__ import annotations

import random

from guards.domains import congruence
from guards.domains.congruence import Class, Congruence


def _random(rng: random.Random) -> Class:
    return congruence.of(rng.choice([0, 1, 2, 3, 4, 6, 8, 12]), rng.randint(-9, 9))


def _members(one: Class) -> list[int]:
    return [one[1]] if one[0] == 0 else [one[1] + one[0] * k for k in range(-4, 5)]


def test_results_contain_all_members() -> None:
    rng = random.Random(2)
    for _ in range(2000):
        a, b = _random(rng), _random(rng)
        number = rng.choice([1, 2, 3, 4, 8])
        factor = rng.randint(-4, 4)
        total, product = congruence.add(a, b), congruence.product(a, b)
        either, scaled = congruence.hull(a, b), congruence.scaled(a, factor)
        quotient, rest = congruence.floordiv(a, number), congruence.mod(a, number)
        for x in _members(a):
            assert congruence.meets(scaled, factor * x)
            assert congruence.meets(quotient, x // number)
            assert congruence.meets(rest, x % number)
            assert congruence.meets(either, x)
            for y in _members(b):
                assert congruence.meets(total, x + y)
                assert congruence.meets(product, x * y)


def test_results_are_tight() -> None:
    assert congruence.add((8, 3), (4, 2)) == (4, 1)
    assert congruence.product((4, 0), (6, 0)) == (24, 0)
    assert congruence.product((2, 1), (2, 1)) == (2, 1)
    assert congruence.hull((0, 3), (0, 11)) == (8, 3)
    assert congruence.mod((8, 3), 4) == (0, 3)
    assert congruence.floordiv((8, 3), 4) == (2, 0)
    assert 11 in Congruence(8, 3)
    assert 12 not in Congruence(8, 3)
    assert 3 in Congruence(0, 3)
    assert 11 not in Congruence(0, 3)
