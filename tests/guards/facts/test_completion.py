"""Completing models: symbols that were rewritten away get the values that fit, and what does not
fit is refused.
"""

from __future__ import annotations

import random

from guards import parse
from guards.asking.assumptions import facts_from
from guards.errors import Contradiction, ParseError
from guards.facts.completion import completed, with_defaults
from guards.terms.arithmetic import symbol
from guards.terms.fold import evaluate
from guards.terms.term import Op
from tests.strategies import assumption, range_of_symbol

x, y = symbol("x"), symbol("y")


def test_rewritten_symbols_follow() -> None:
    component = facts_from({"x": (0, 9), "y": (0, 15)}, ["y == 2*x + 1"]).component(x + y)
    assert completed(component, {"x": 4}) == {"x": 4, "y": 9}
    assert completed(component, {"x": 4, "y": 3}) == {"x": 4, "y": 9}
    assert completed(component, {"x": 8}) is None  # y is at most 15
    assert completed(component, {"x": -1}) is None
    assert completed(component, {}) is None


def test_conditions_are_checked() -> None:
    component = facts_from({"x": (0, 9), "y": (0, 9)}, ["x*y == 12", "x % y <= 3"]).component(x + y)
    assert completed(component, {"x": 3, "y": 4}) == {"x": 3, "y": 4}
    assert completed(component, {"x": 3, "y": 5}) is None
    # and where one is undefined it does not hold
    assert completed(component, {"x": 3, "y": 0}) is None


def test_new_symbols_are_left_out() -> None:
    component = facts_from({"x": (0, 99)}, ["x % 8 == 0"]).component(x)
    (fresh,) = component.fresh
    assert completed(component, {fresh.name: 3}) == {"x": 24}


def test_defaults_lie_within_the_ranges() -> None:
    component = facts_from({"x": (3, None), "y": (None, -2)}, ["x + y <= 99"]).component(x + y)
    assert with_defaults(component, {}) == {"x": 3, "y": -2}
    assert with_defaults(component, {"x": 7}) == {"x": 7, "y": -2}
    given = {"x": 7}
    assert with_defaults(component, given) is not given


def test_completed_models_satisfy_everything() -> None:
    rng = random.Random(12)
    made = 0
    for _ in range(500):
        names = ("x", "y", "z")
        try:
            facts = facts_from(
                {name: range_of_symbol(rng) for name in names},
                [assumption(rng, names) for _ in range(rng.randint(1, 3))],
            )
        except (ParseError, Contradiction):
            continue
        component = facts.component(parse("x + y + z"))
        for _ in range(10):
            free = {s.name: rng.randint(-3, 12) for s in component.ranges if s.op is Op.SYMBOL}
            model = completed(component, free)
            if model is None:
                continue
            made += 1
            assert set(model) == {s.name for s in component.symbols}
            assert all(evaluate(c, model) for c in facts.conditions)
            assert all(model[s.name] in facts.declared(s) for s in component.symbols)
    assert made > 400
