"""The nearest point, against trying all of them."""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards import GuardSet, parse
from guards.regions import nearest as module
from guards.regions.nearest import nearest
from guards.regions.satisfiability import holds
from tests.guards.making import random_set

NAMES = ("s0", "s1")


def _cost(there: dict[str, int], here: dict[str, int]) -> tuple[int, int]:
    return sum(there[name] != here[name] for name in here), sum(
        abs(there[name] - here[name]) for name in here
    )


def test_against_all_points() -> None:
    rng = random.Random(31)
    moved = nothing = 0
    for _ in range(60):
        guards = random_set(rng, NAMES, 3).intersect(GuardSet((), dict.fromkeys(NAMES, (0, 7))))
        terms = [guard.term for guard in guards]
        here = {name: rng.randint(-2, 9) for name in NAMES}
        points = [dict(zip(NAMES, values, strict=True)) for values in product(range(8), repeat=2)]
        costs = [_cost(point, here) for point in points if guards.holds(point)]
        found = nearest(terms, guards.ranges, here)
        if found is None:
            assert not costs, (guards, here)
            nothing += 1
            continue
        assert guards.holds(found.values)
        assert set(found.changed) == {name for name in NAMES if found.values[name] != here[name]}
        if found.certain:
            assert _cost(found.values, here) == min(costs), (guards, here)
        moved += bool(found.changed)
    assert moved > 20
    assert nothing > 2


def test_a_point_of_the_region_stays() -> None:
    found = nearest([parse("s0 > s1")], {}, {"s0": 4, "s1": 2})
    assert found is not None
    assert (found.values, found.changed, found.certain) == ({"s0": 4, "s1": 2}, (), True)


def test_fewer_changes_come_before_smaller_ones() -> None:
    """Both together could move by 5 and 4; one alone must move by 9."""
    found = nearest([parse("s0 + s1 >= 10")], {"s0": (0, None), "s1": (0, 4)}, {"s0": 1, "s1": 0})
    assert found is not None
    assert found.changed == ("s0",)
    assert found.values == {"s0": 10, "s1": 0}


def test_parts_that_share_no_symbol_move_by_themselves() -> None:
    found = nearest(
        [parse("s0 > 4"), parse("s1 % 4 == 1"), parse("s2 > 0")], {}, {"s0": 0, "s1": 2, "s2": 5}
    )
    assert found is not None
    assert found.values == {"s0": 5, "s1": 1, "s2": 5}
    assert found.changed == ("s0", "s1")


def test_nowhere() -> None:
    assert nearest([parse("s0 > s1"), parse("s1 > s0")], {}, {"s0": 1, "s1": 2}) is None


@pytest.mark.parametrize(
    ("text", "wanted"), [("s0 >= 100000", 100_000), ("s0 % 4096 == 4000 and s0 > 9000", 12_192)]
)
def test_far_away_is_asked_of_a_solver(text: str, wanted: int) -> None:
    found = nearest([parse(text)], {}, {"s0": 3})
    assert found is not None
    assert found.values == {"s0": wanted}
    assert found.certain


def test_beyond_the_limits_a_point_is_found_but_not_certain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_SUBSETS", 0)
    conditions = [parse("s0 + s1 == 9"), parse("s0 > s1")]
    found = nearest(conditions, {}, {"s0": 0, "s1": 0})
    assert found is not None
    assert not found.certain
    assert holds(conditions, {"s0": (0, None), "s1": (0, None)}, found.values)
