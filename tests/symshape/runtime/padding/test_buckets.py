"""Capacities: steps, as far as guards allow."""

from __future__ import annotations

import random

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
        (["s0 != s1"], {"s0": 9, "s1": 10}, {"s0": 9, "s1": 10}),
        (["s0 == 2*s1"], {"s0": 10, "s1": 5}, {"s0": 12, "s1": 6}),
        (["s0 == s1 + 1"], {"s0": 10, "s1": 9}, {"s0": 10, "s1": 9}),
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
