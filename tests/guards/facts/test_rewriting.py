"""Rewriting with the whole table: no value changes, and terms do not grow."""

from __future__ import annotations

import random

from guards.asking.assumptions import facts_from
from guards.asking.reading import parse
from guards.errors import ParseError
from guards.facts.rewriting import rewritten
from guards.terms.extremes import maximum
from guards.terms.fold import evaluate
from guards.terms.term import postorder
from tests.strategies import condition, term_under_facts, values_differ


def test_rewriting_keeps_values() -> None:
    """Random terms under random facts: equal wherever the facts hold."""
    rng = random.Random(17)
    compared = changed = 0
    for _ in range(2500):
        drawn = term_under_facts(rng)
        if drawn is None:
            continue
        term, facts = drawn
        component = facts.component(term)
        made = rewritten(component, term)
        if made is term:
            continue
        changed += 1
        for differ in values_differ(rng, term, made, facts):
            assert not differ, (facts, term, made)
            compared += 1
    assert changed > 400
    assert compared > 2000


def test_rewriting_is_stable() -> None:
    rng = random.Random(4)
    for _ in range(600):
        try:
            term = parse(condition(rng))
        except ParseError:
            continue
        facts = facts_from(dict.fromkeys(("x", "y", "z"), (1, None)))
        component = facts.component(term)
        once = rewritten(component, term)
        assert sum(1 for _ in postorder(once)) <= 4 * sum(1 for _ in postorder(term)) + 8


def test_deep_terms_are_rewritten_too() -> None:
    facts = facts_from({"x": (1, None), "y": (1, 4)})
    term = parse("x")
    for step in range(120):
        term = maximum((term + step) // (parse("y") + 1), parse("min(x, x + y)") - step)
    made = rewritten(facts.component(term), term)
    for point in ({"x": 1, "y": 1}, {"x": 1000, "y": 3}, {"x": 77, "y": 4}):
        assert evaluate(made, point) == evaluate(term, point)
