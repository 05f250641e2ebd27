"""Points of a component: they satisfy all that is known, are found again, and small boxes are tried
completely.
"""

from __future__ import annotations

import random

import pytest

from guards import parse
from guards.asking.assumptions import facts_from
from guards.deciders.witnesses import (
    FAR,
    POINTS,
    Found,
    box_size,
    compiled,
    each_point,
    exhaust,
    exhausted,
    nearer,
    points,
    satisfies,
    witness,
)
from guards.errors import Contradiction, ParseError
from guards.facts.facts import Facts
from guards.terms.arithmetic import symbol
from guards.terms.boolean import ge
from guards.terms.fold import evaluate
from tests.strategies import assumption, range_of_symbol

x, y = symbol("x"), symbol("y")


def test_points_satisfy_what_is_known() -> None:
    rng = random.Random(2)
    found = without = 0
    for _ in range(400):
        names = ("x", "y", "z")[: rng.randint(1, 3)]
        try:
            facts = facts_from(
                {name: range_of_symbol(rng) for name in names},
                [assumption(rng, names) for _ in range(rng.randint(0, 2))],
            )
        except (ParseError, Contradiction):
            continue
        for component in {facts.component(symbol(name)) for name in names}:
            made = list(each_point(component))
            assert len(made) <= POINTS
            found += len(made)
            without += not made
            for point in made:
                assert set(point) == {s.name for s in component.symbols}
                assert all(point[s.name] in facts.declared(s) for s in component.symbols)
                assert satisfies(point, component.conditions)
            assert len({tuple(point.items()) for point in made}) == len(made)
    assert found > 1000
    assert without < 60


def test_points_are_found_once_and_handed_down() -> None:
    facts = Facts().with_symbol(x, 0).with_symbol(y, 0).assume(ge(y, x))
    component = facts.component(x)
    first = list(each_point(component))
    memo = component.memo.points
    assert isinstance(memo, Found)
    assert list(each_point(component)) == first
    assert component.memo.points is memo
    inner = facts.assume(parse("y >= x + 2")).component(x)
    handed = [point for point in first if point["y"] >= point["x"] + 2]
    assert handed
    assert all(point in list(each_point(inner)) for point in handed)


def test_points_shown_to_people_are_near() -> None:
    component = Facts().component(x + y)
    assert any(
        abs(value) >= FAR // 2 for point in each_point(component) for value in point.values()
    )
    assert not any(
        abs(value) >= FAR // 2 for point in points(component) for value in point.values()
    )


@pytest.mark.parametrize("text", ["x < y", "x % 3 == 0", "x*y >= 10", "x > 1000"])
@pytest.mark.parametrize("value", [True, False])
def test_witnesses_show_the_value(text: str, value: bool) -> None:
    component = facts_from({"x": (0, None), "y": (0, None)}).component(x + y)
    point = witness(component, parse(text), value)
    assert point is not None
    assert evaluate(parse(text), point) is value


def test_there_is_no_witness_of_what_never_happens() -> None:
    component = facts_from({"x": (3, 9), "y": (1, None)}).component(x + y)
    assert witness(component, parse("x <= 2"), True) is None
    # undefined at some points, false elsewhere
    assert witness(component, parse("x // (y - 1) == -1"), True) is None


@pytest.mark.parametrize("least", [1, 2, 17, 1000, 10**9])
def test_a_nearer_point_is_the_nearest_on_its_line(least: int) -> None:
    condition = ge(x, least)
    component = Facts().component(x)
    assert nearer(component, condition, True, {"x": FAR}) == {"x": least}
    below = Facts.make({x: (None, None)}).component(x)
    assert nearer(below, parse(f"x <= -{least}"), True, {"x": -FAR}) == {"x": -least}
    assert nearer(component, condition, True, {"x": least + 5}) == {"x": least + 5}  # near enough


def test_functions_of_values() -> None:
    function = compiled(parse("x // 3 + max(x, y)"), [x, y])
    assert function is not None
    assert function(7, 2) == 9
    long = parse(" + ".join(f"x*y % {k}" for k in range(2, 600)))
    assert compiled(long, [x, y]) is None


def test_box_sizes() -> None:
    component = facts_from({"x": (0, 9), "y": (-1, 1)}).component(x + y)
    assert box_size(component, [x, y]) == 30
    assert box_size(component, []) == 1
    assert box_size(Facts().component(x), [x]) is None


def test_exhausting_a_box() -> None:
    facts = facts_from({"x": (0, 9), "y": (1, 9)}, ["x <= y"])
    component = facts.component(parse("x + y"))
    assert exhaust(component, parse("x > y")) is True
    assert exhaust(component, parse("x // y == 1")) is False
    assert exhaust(component, parse("x*y == 83")) is True
    assert exhaust(component, parse("x + z == 3")) is None
    assert exhaust(component, parse("x == 3"), limit=5) is None
    loose = facts_from({"x": (0, 3), "y": (0, 3)})
    assert exhaust(loose.component(parse("x + y")), parse("x // y >= 9 or x*y >= 99")) is None


def test_what_is_found_in_a_box_solves_the_formula() -> None:
    component = facts_from({"x": (0, 9), "y": (1, 9)}).component(x + y)
    assert exhausted(component, parse("x*y == 35 and x < y")) == (False, {"x": 5, "y": 7})
    assert exhausted(component, parse("x*y == 83")) == (True, None)
    assert exhausted(component, parse("x*y == 35"), limit=20) == (None, None)
