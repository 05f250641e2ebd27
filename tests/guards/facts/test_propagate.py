"""Learning conditions: what is given once is remembered, limits end the work, and what is known is
enough.
"""

from __future__ import annotations

from itertools import product

import pytest

from guards.asking.reading import parse
from guards.facts.component import Component
from guards.facts.facts import Facts
from guards.facts.propagate import assume, declare, with_condition
from guards.terms.arithmetic import symbol
from guards.terms.boolean import le
from guards.terms.fold import evaluate

x, y = symbol("x"), symbol("y")


def test_a_component_is_never_changed() -> None:
    before = Facts().with_symbol(x, 1).with_symbol(y, 1).component(x + y)
    stated = before.stated()
    after = assume(before, (parse("x + y <= 5"), parse("x != y")))
    assert before.stated() == stated
    assert before.conditions == ()
    assert after.conditions == (parse("x + y <= 5"), parse("x != y"))
    assert after.bounds(x) == (1, 4)


def test_one_condition_more_is_remembered() -> None:
    component = Facts().component(x + y)
    more = with_condition(component, le(x, y))
    assert with_condition(component, le(x, y)) is more
    for number in range(100):  # within limits
        with_condition(component, le(x, number))
    assert with_condition(component, le(x, y)).stated() == more.stated()


def test_what_has_one_value_is_replaced_by_it() -> None:
    component = Component({x: (4, 4), y: (0, None)})
    declare(component)
    assert component.canonical(x + y) is y + 4


@pytest.mark.parametrize(
    "assumed",
    [
        ["x*y <= 20", "x >= 3", "y >= 2", "x != 4"],
        ["x % 4 == 1", "x + y <= 12", "y == 1 or y >= 7"],
        ["x // 3 == y", "x <= 11", "x % y == 0"],
        ["2*x + 3*y == 17", "x != 1"],
        ["min(x, y) >= 2", "max(x, y) <= 6", "x != y"],
        ["(x if x > y else y) <= 5", "x*x >= 4"],
    ],
)
def test_stated_conditions_say_all_that_was_assumed(assumed: list[str]) -> None:
    """The values that satisfy what a component states are those that satisfy the assumptions, and
    no others.
    """
    conditions = [parse(text) for text in assumed]
    facts = Facts()
    for condition in conditions:
        facts = facts.assume(condition)
    component = facts.component(x + y)
    stated = component.stated()
    window = range(21)
    wanted = set()
    for a, b in product(window, repeat=2):
        try:
            if all(evaluate(condition, {"x": a, "y": b}) for condition in conditions):
                wanted.add((a, b))
        except ZeroDivisionError:
            continue
    names = sorted(
        {s.name for condition in stated for s in condition.symbols}
        | {"x", "y"} - _rewritten(component)
    )
    found = set()
    for values in product(range(-21, 22) if len(names) < 3 else range(21), repeat=len(names)):
        point = dict(zip(names, values, strict=True))
        try:
            if not all(evaluate(condition, point) for condition in stated):
                continue
            whole = dict(point)
            for atom, replacement in component.rewrites.items():
                if atom in {x, y}:
                    whole[atom.name] = evaluate(replacement, point)
        except ZeroDivisionError:
            continue
        if whole["x"] in window and whole["y"] in window:
            found.add((whole["x"], whole["y"]))
    assert found == wanted


def _rewritten(component: Component) -> set[str]:
    return {atom.name for atom in component.rewrites if atom in {x, y}}


def test_endless_work_ends() -> None:
    facts = Facts()
    for text in ("x == 2*y", "y == 2*z", "z >= 1", "x*y*z >= w", "w*w >= x + y", "x*w <= z*z*y"):
        facts = facts.assume(parse(text))
    assert evaluate(parse("x*w <= z*z*y"), {"x": 4, "w": 0, "y": 2, "z": 1})
    assert not facts.contradictory
