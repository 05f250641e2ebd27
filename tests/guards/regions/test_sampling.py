"""Samples: points of the region, different, spread, the same ones for the same seed, the ends among
them.
"""

from __future__ import annotations

import random

import pytest

from guards import GuardSet, parse
from guards.regions.sampling import sample
from tests.guards.making import SLOTS, random_set


class TestSamples:
    """As a user asks for them."""

    @pytest.mark.parametrize(
        ("texts", "ranges", "wanted"),
        [
            (["s0 == 3 or s0 == 900 or s0 > 5000"], {}, {3, 900, 5001}),
            (["s0 * s0 >= 1000000"], {"s0": (0, 2000)}, {1000, 2000}),
            (["s0 % 64 == 5"], {"s0": (0, 4096)}, {5, 4037}),
            (["s0 != 7"], {"s0": (5, 9)}, {5, 9}),
            (["s0 % 2 == 1"], {"s0": (1, 9)}, {1, 3, 5, 7, 9}),
        ],
    )
    def test_the_ends_are_among_them(
        self, texts: list[str], ranges: dict[str, tuple[int | None, int | None]], wanted: set[int]
    ) -> None:
        found = GuardSet.read(*texts, ranges=ranges).sample(10)
        assert wanted <= {point["s0"] for point in found}

    def test_remainders_of_squares(self) -> None:
        """No walk that tries values at random would find many of these."""
        guards = GuardSet.read("(s0*s0 + 3) % 101 == 7")
        found = guards.sample(12)
        assert len(found) == 12
        assert {point["s0"] % 101 for point in found} == {2, 99}

    def test_ends_that_depend_on_another_symbol(self) -> None:
        found = GuardSet.read("s0 < s1", ranges={"s1": (1, 40)}).sample(12)
        assert any(point["s0"] == point["s1"] - 1 for point in found)
        assert any(point["s0"] == 0 for point in found)
        assert any(point["s1"] == 40 for point in found)

    def test_nothing_to_take(self) -> None:
        assert GuardSet.read("s0 * s0 == 7").sample(3) == []
        assert GuardSet().sample(2) == [{}]
        assert GuardSet.read("s0 > 1").sample(0) == []

    def test_samples_spread(self) -> None:
        guards = GuardSet.read("s0 % 8 == 0", "s1 < s0", ranges={"s0": (8, 4096), "s1": (0, None)})
        found = guards.sample(20)
        assert len(found) == 20
        assert all(guards.holds(point) for point in found)
        assert max(p["s0"] for p in found) > 2000 > 64 >= min(p["s0"] for p in found)
        assert found == guards.sample(20)
        assert found != guards.sample(20, seed=1)

    def test_sample_finds_every_point_of_a_small_set(self) -> None:
        guards = GuardSet.read("s0 * s1 == 12", ranges={"s0": (1, 20), "s1": (1, 20)})
        found = guards.sample(50)
        assert sorted(p["s0"] for p in found) == [1, 2, 3, 4, 6, 12]

    def test_random_sets(self) -> None:
        rng = random.Random(21)
        found_some = 0
        for _ in range(60):
            guards = random_set(rng)
            found = guards.sample(6)
            assert all(guards.holds(point) for point in found), guards
            assert len({tuple(point.values()) for point in found}) == len(found)
            assert bool(found) or guards.is_satisfiable() is not True, guards
            found_some += bool(found)
        assert found_some > 20


def test_symbols_without_a_range_are_sizes() -> None:
    found = sample([parse("s0 < 3")], {}, 9)
    assert sorted(point["s0"] for point in found) == [0, 1, 2]


def test_names_of_all_ranges_are_in_each_point() -> None:
    (point,) = sample([parse("s0 == 3")], {"s1": (4, 4)}, 5)
    assert point == {"s0": 3, "s1": 4}
    assert not set(SLOTS[2:]) & set(point)


def test_negative_and_unbounded() -> None:
    found = sample([parse("s0 % 10 == 7")], {"s0": (None, -1)}, 8)
    assert len(found) == 8
    assert all(point["s0"] < 0 and point["s0"] % 10 == 7 for point in found)
    assert {"s0": -3} in found
