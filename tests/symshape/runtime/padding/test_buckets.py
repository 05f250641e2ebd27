"""Capacities: steps, as far as guards allow."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from guards import parse
from symshape.runtime.padding.buckets import capacities, step_up


@pytest.mark.parametrize("value", [0, 1, 2, 3, 5, 17, 100, 1000, 12345])
def test_a_step_holds_its_value_and_wastes_little(value: int) -> None:
    assert value <= step_up(value) <= max(2, value + value // 2 + 1)
    assert step_up(step_up(value)) == step_up(value)


@pytest.mark.parametrize(
    ("guards", "values", "expected"),
    [
        ([], {"s0": 5}, {"s0": 6}),
        (["s0 <= 5"], {"s0": 5}, {"s0": 5}),
        (["s0 == 5"], {"s0": 5}, {"s0": 5}),
        (["s0 % 5 == 0"], {"s0": 25}, {"s0": 35}),
        (["s0 == s1"], {"s0": 9, "s1": 9}, {"s0": 12, "s1": 12}),
        (["s0 != s1"], {"s0": 9, "s1": 10}, {"s0": 12, "s1": 11}),
        (["s0 == 2*s1"], {"s0": 10, "s1": 5}, {"s0": 12, "s1": 6}),
        (["s0 == s1 + 1"], {"s0": 10, "s1": 9}, {"s0": 12, "s1": 11}),
        (
            ["s0 == s1 + 100", "s1 == s2"],
            {"s0": 1100, "s1": 1000, "s2": 1000},
            {"s0": 1124, "s1": 1024, "s2": 1024},
        ),
        (["s0 == s1 + 1", "s0 % 5 == 0"], {"s0": 10, "s1": 9}, {"s0": 15, "s1": 14}),
        (["s0 == s1*s1"], {"s0": 81, "s1": 9}, {"s0": 144, "s1": 12}),
        (["s0 == s1*s1*s1*s1"], {"s0": 6561, "s1": 9}, {"s0": 6561, "s1": 9}),
    ],
)
def test_capacities(guards: list[str], values: dict[str, int], expected: dict[str, int]) -> None:
    assert capacities([parse(text) for text in guards], values, list(values)) == expected


def test_capacities_always_satisfy_the_guards() -> None:
    rng = random.Random(0)
    texts = ["s0 % 3 == 0", "s0 <= s1", "s0*s1 <= 300", "(s0 + 1) // 2 < 9", "s0 != s1", "s1 >= 2"]
    for _ in range(300):
        chosen = [parse(text) for text in rng.sample(texts, 3)]
        values = {"s0": rng.randint(0, 40), "s1": rng.randint(0, 40)}
        from guards.terms.fold import evaluate

        if not all(evaluate(term, values) for term in chosen):
            continue
        caps = capacities(chosen, values, ["s0", "s1"])
        assert all(evaluate(term, caps) for term in chosen)
        assert all(caps[name] >= value for name, value in values.items())


def test_a_mask_is_as_much_longer_than_the_cache_at_each_step() -> None:
    """A decode step: caches of several layers, a mask one longer (its size by way of the batch),
    one bucket a step.
    """
    texts = ["s1 == s2", "s2 == s3", "1 + s1 <= s0*s4//s0", "s0*s4//s0 <= 1 + s1", "s0 == 4"]
    conditions = [parse(text) for text in texts]
    found = set()
    for length in range(1, 500):
        values = {"s0": 4, "s1": length, "s2": length, "s3": length, "s4": length + 1}
        found.add(tuple(capacities(conditions, values, list(values)).values()))
    assert all(cap[1] == step_up(cap[1]) and cap[4] == cap[1] + 1 for cap in found)
    assert len(found) == len({step_up(length) for length in range(1, 500)})


def test_thousands_of_conditions_take_no_time_worth_mentioning() -> None:
    """A decode step of 100 layers whose caches are all as long, and a mask."""
    names = [f"s{i}" for i in range(200)]
    conditions = [parse(f"{one} == {other}") for one, other in itertools.pairwise(names)]
    conditions.append(parse("t0 == s0 + 1"))
    values = {**dict.fromkeys(names, 9), "t0": 10}
    start = time.process_time()
    caps = capacities(conditions, values, list(values))
    assert time.process_time() - start < 0.05
    assert caps == {**dict.fromkeys(names, 12), "t0": 13}


def test_large_sizes_take_no_time_worth_mentioning() -> None:
    conditions = [parse("s0 == s1 + 300000"), parse("s1 % 2 == s2 % 2"), parse("s2 < s0*s0")]
    values = {"s0": 1_000_001 + 300_000, "s1": 1_000_001, "s2": 1_000_003}
    start = time.process_time()
    caps = capacities(conditions, values, list(values))
    assert time.process_time() - start < 0.1
    assert caps["s0"] == caps["s1"] + 300_000
    assert caps["s1"] % 2 == caps["s2"] % 2
