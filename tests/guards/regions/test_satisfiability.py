"""Regions: a point that is one, a proof that there is none, and the conditions that are to
blame.
"""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards import GuardSet, parse
from guards.domains.interval_arithmetic import EVERYTHING, SIZES, Pair
from guards.regions.satisfiability import (
    components,
    core,
    empty_range,
    facts_of,
    holds,
    implied,
    range_conditions,
    search,
    universe,
)
from guards.terms.arithmetic import symbol
from tests.guards.making import random_set

NAMES = ("s0", "s1")
S0 = symbol("s0")
POINTS = [dict(zip(NAMES, values, strict=True)) for values in product(range(-1, 7), repeat=2)]


def _random(rng: random.Random) -> GuardSet:
    return random_set(rng, NAMES, 4).intersect(GuardSet((), dict.fromkeys(NAMES, (0, 5))))


def test_search_against_all_points() -> None:
    rng = random.Random(41)
    seen = {True: 0, False: 0}
    for _ in range(120):
        guards = _random(rng)
        found = search([guard.term for guard in guards], guards.ranges)
        inside = [point for point in POINTS if guards.holds(point)]
        assert found.satisfiable is bool(inside), guards
        assert (found.model in inside) if inside else found.model is None
        seen[bool(inside)] += 1
    assert min(seen.values()) > 20


def test_implied_against_all_points() -> None:
    rng = random.Random(43)
    seen = {True: 0, False: 0}
    for _ in range(120):
        guards = _random(rng)
        (condition, *_) = [guard.term for guard in random_set(rng, NAMES, 3)] or [parse("s0 <= s1")]
        found = implied([guard.term for guard in guards], guards.ranges, condition)
        against = [p for p in POINTS if guards.holds(p) and not holds([condition], {}, p)]
        assert found.satisfiable is bool(against), (guards, condition)
        assert (found.model in against) if against else found.model is None
        seen[bool(against)] += 1
    assert min(seen.values()) > 20


def test_core_is_least() -> None:
    """Without any one of its conditions something satisfies the others."""
    rng = random.Random(47)
    found_some = 0
    for _ in range(200):
        guards = _random(rng)
        terms = [guard.term for guard in guards.conditions]
        free = dict.fromkeys(NAMES, EVERYTHING)
        found = core(terms, free)
        if found is None:
            assert any(guards.holds(point) for point in POINTS), guards
            continue
        chosen = [terms[index] for index in found]
        assert not any(holds(chosen, {}, point) for point in POINTS)
        for index in range(len(chosen)):
            rest = chosen[:index] + chosen[index + 1 :]
            assert search(rest, free).satisfiable is True, (chosen, index)
        found_some += 1
    assert found_some > 20


def test_core_of_an_empty_range() -> None:
    assert core([parse("s0 > 2")], {"s1": (3, 2)}) == []
    assert core([parse("s0 > 2")], {}) is None


def test_search_gives_a_value_to_every_symbol() -> None:
    assert search([], {"s0": (3, 9), "s1": (None, -4), "s2": EVERYTHING}).model == {
        "s0": 3,
        "s1": -4,
        "s2": 0,
    }
    assert search([parse("s0 == 7")], {"s1": (1, None)}).model == {"s1": 1, "s0": 7}


def test_undefined_conditions_do_not_hold() -> None:
    assert search([parse("s0 % s1 >= 0"), parse("s1 <= 0")], {}).satisfiable is False
    assert implied([], {}, parse("s0 % s1 >= 0")).model == {"s0": 0, "s1": 0}
    assert not holds([parse("s0 // s1 == 2")], {}, {"s0": 2, "s1": 0})


@pytest.mark.parametrize(
    ("limits", "texts"),
    [
        (EVERYTHING, []),
        (SIZES, ["s0 >= 0"]),
        ((None, 4), ["s0 <= 4"]),
        ((2, 8), ["s0 >= 2", "s0 <= 8"]),
        ((5, 5), ["s0 == 5"]),
    ],
)
def test_conditions_of_a_range(limits: Pair, texts: list[str]) -> None:
    assert [str(condition) for condition in range_conditions("s0", limits)] == texts


@pytest.mark.parametrize(
    ("limits", "wide"),
    [(SIZES, SIZES), ((3, 4), SIZES), ((-1, 4), EVERYTHING), (EVERYTHING, EVERYTHING)],
)
def test_universe(limits: Pair, wide: Pair) -> None:
    assert universe(limits) == wide


def test_empty_ranges() -> None:
    assert empty_range({"s0": (1, 0)})
    assert not empty_range({"s0": (1, 1), "s1": EVERYTHING})
    assert search([], {"s0": (1, 0)}).satisfiable is False
    assert implied([], {"s0": (1, 0)}, parse("s0 > 99")).satisfiable is False


def test_facts_of_conditions_also_know_that_they_are_defined() -> None:
    facts = facts_of({"s0": SIZES, "s1": SIZES}, [parse("s0 % s1 == 0")])
    assert facts.interval(symbol("s1")).lo == 1


def test_groups_share_no_symbol() -> None:
    conditions = [parse(text) for text in ("a > 1", "c > d", "b > 2", "a > b", "True", "d > e")]
    assert components(conditions) == [[0, 2, 3], [1, 5], [4]]
