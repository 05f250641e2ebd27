"""Pushing: a point that is found is one, and chains longer than a local search weighs have
theirs.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from guards import parse
from guards.asking.assumptions import facts_from
from guards.asking.queries import decide
from guards.deciders.pushing import push
from guards.errors import Contradiction
from guards.terms import boolean
from guards.terms.fold import evaluate


def test_what_is_found_is_a_point_of_the_component() -> None:
    rng = random.Random(5)
    found = 0
    for _ in range(300):
        names = [f"p{i}" for i in range(rng.randint(3, 9))]
        rows = []
        for _ in range(rng.randint(2, 12)):
            one, other = rng.sample(names, 2)
            rows.append(
                f"{rng.choice((1, 1, 2))}*{one} + {rng.randint(-2, 2)} <= "
                f"{other} + {rng.choice((0, 0, 1))}*{rng.choice(names)}"
            )
        try:
            facts = facts_from(None, rows)
        except Contradiction:
            continue
        one, other = rng.sample(names, 2)
        asked = parse(f"{one} {rng.choice(('<=', '==', '!='))} {other}")
        if not asked.symbols:
            continue
        component = facts.component(asked)
        for value in (True, False):
            point = push(component, asked, asked if value else boolean.not_(asked), value)
            if point is not None:
                found += 1
                assert evaluate(asked, point) is value
                assert all(evaluate(condition, point) for condition in component.conditions), (
                    rows,
                    point,
                )
                assert all(number >= 0 for number in point.values())
    assert found > 150, found


@pytest.mark.parametrize("number", [40, 120])
def test_a_long_chain_needs_no_solver(number: int) -> None:
    names = [f"q{i}" for i in range(number + 1)]
    rows = [f"{a} <= {b}" for a, b in pairwise(names)]
    verdict = decide(f"{names[-1]} <= {names[0]}", assume=rows)
    assert (verdict.value, verdict.rung) == (None, "points")
    assert verdict.fails is not None
    pushed = decide(f"{names[0]} <= 5", assume=rows)  # raising the first raises all
    assert pushed.value is None
    assert pushed.fails is not None
    assert all(pushed.fails[name] >= 6 for name in names)
