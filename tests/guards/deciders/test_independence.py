"""Where bounds tell all: on a box, a condition that they leave open really depends on the
values.
"""

from __future__ import annotations

import itertools
import random

import pytest

from guards import parse
from guards.asking.assumptions import facts_from
from guards.deciders.independence import FREE, HOLED, TIED, bounds_tell_all, freedom
from guards.errors import Contradiction
from guards.terms.arithmetic import const, symbol
from guards.terms.boolean import eq, le, ne
from guards.terms.fold import evaluate


@pytest.mark.parametrize(
    ("assumed", "wanted"),
    [
        ([], FREE),
        (["x >= 3"], FREE),
        (["x == 3"], FREE),
        (["x != 3"], HOLED),
        (["x <= y"], TIED),
        (["x == y"], TIED),
        (["x != y"], TIED),
        (["x % 8 == 0"], TIED),
        (["x*y <= 12"], TIED),
        (["x == 1 or x == 7"], TIED),
    ],
)
def test_freedom(assumed: list[str], wanted: int) -> None:
    component = facts_from({"x": (0, 9), "y": (0, 9)}, assumed).component(parse("x + y"))
    assert freedom(component) == wanted
    assert component.memo.freedom == wanted
    component.memo.freedom = FREE  # what was found is not looked for again
    assert freedom(component) == FREE


def test_where_bounds_tell_all_nothing_else_could() -> None:
    rng = random.Random(11)
    symbols = [symbol(name) for name in "ab"]
    told = open_ones = 0
    for _ in range(1500):
        ranges = {
            s.name: (low, low + rng.randint(0, 4)) for s in symbols for low in [rng.randint(-3, 3)]
        }
        assumed = [
            ne(rng.choice(symbols), rng.randint(-2, 4)) for _ in range(rng.choice((0, 0, 1, 2)))
        ]
        try:
            facts = facts_from(ranges, assumed)
        except Contradiction:
            continue
        total = sum(
            (rng.choice((-2, -1, 1, 3)) * each for each in symbols[: rng.randint(1, 2)]),
            const(rng.randint(-4, 4)),
        )
        asked = rng.choice((le, eq, ne))(total, 0)
        if not asked.symbols:
            continue
        component = facts.component(asked)
        if not bounds_tell_all(component, asked):
            continue
        axes = [range(low, high + 1) for low, high in ranges.values()]
        points = [dict(zip("ab", values, strict=True)) for values in itertools.product(*axes)]
        truths = {
            evaluate(asked, p) for p in points if all(evaluate(c, p) for c in facts.conditions)
        }
        told += 1
        found = component.look(asked)
        open_ones += found is None
        assert truths == ({True, False} if found is None else {found}), (facts, asked)
    assert told > 500
    assert open_ones > 150


def test_where_more_than_bounds_is_needed() -> None:
    component = facts_from({"x": (0, 9), "y": (0, 9)}).component(parse("x + y"))
    for text in ("x % 8 <= 3", "x*y <= 3", "x == 3 or y == 3", "2*x == 3*y"):
        assert not bounds_tell_all(component, parse(text)), text
    assert bounds_tell_all(component, parse("2*x <= 3*y"))
    holed = facts_from({"x": (0, 9), "y": (0, 9)}, ["x != 3"]).component(parse("x + y"))
    assert bounds_tell_all(holed, parse("x == 4"))
    assert not bounds_tell_all(holed, parse("x == y"))
