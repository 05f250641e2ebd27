"""The state of learning: ranges wait as conditions, and a change forgets what was worked out."""

from __future__ import annotations

from itertools import product

import pytest

from guards.asking.reading import parse
from guards.domains.interval import Interval
from guards.facts.component import Component, contains
from guards.facts.facts import Facts
from guards.facts.learning import Learning, replace_everywhere
from guards.terms import arithmetic
from guards.terms.arithmetic import symbol
from guards.terms.fold import evaluate

x, y = symbol("x"), symbol("y")


def test_a_range_waits_as_conditions() -> None:
    learning = Learning(Component({x: (0, None), y: (0, None)}))
    learning.between(x - y, 2, None)
    learning.between(x, None, 7)
    learning.between(y, None, None)
    assert learning.pending == [parse("x - y >= 2"), parse("x <= 7")]


def test_a_change_is_seen() -> None:
    learning = Learning(Component({x: (0, None), y: (0, None)}))
    assert learning.component.bounds(x + y) == (0, None)
    learning.component.ranges[x] = (3, 5)
    assert learning.component.bounds(x + y) == (0, None)  # worked out already
    learning.changed()
    assert learning.component.bounds(x + y) == (3, None)


# -- an atom replaced ------------------------------------------------------------------------------


NAMES = ("x", "y", "z")


@pytest.mark.parametrize(
    ("assumed", "atom", "replacement"),
    [
        (["x + y <= 9", "x*z <= 12", "x != y"], "x", "2*z + 1"),
        (["x + y <= 9", "y >= 2"], "y", "z - 1"),
        (["x // y + z <= 7", "x // y >= 1"], "x // y", "z"),
        (["max(x, y) <= 6", "x + max(x, y) >= 3", "x == 1 or z >= 2"], "max(x, y)", "z + 2"),
        (["x - y <= 3", "x + 2*y == 3*z + 7"], "y", "z + 2"),
    ],
)
def test_nothing_is_lost(assumed: list[str], atom: str, replacement: str) -> None:
    facts = Facts()
    for text in assumed:
        facts = facts.assume(parse(text))
    old, new = parse(atom), parse(replacement)
    learning = Learning(facts.component(parse("x + y + z")).copy())
    component = learning.component
    if any(known is old for known in component.rewrites):
        pytest.skip("rewritten already")
    replace_everywhere(learning, old, new)
    assert component.rewrites[old] is new
    assert not any(contains(condition, old) for condition in component.residue)
    assert not any(contains(m, old) for form in component.rows for m, _ in form)
    assert not any(contains(known, old) for known in component.ranges)
    symbols = {symbol.name for known in learning.pending for symbol in known.symbols} - set(NAMES)
    compared = 0
    for values in product(range(8), repeat=3):
        point = dict(zip(NAMES, values, strict=True))
        try:
            if not all(evaluate(c, point) for c in facts.conditions) or evaluate(
                old, point
            ) != evaluate(new, point):
                continue
        except ZeroDivisionError:
            continue
        if not symbols:
            assert all(evaluate(condition, point) for condition in learning.pending), point
        for form, known in component.rows.items():
            if all(symbol.name in point for m, _ in form for symbol in m.symbols):
                assert evaluate(arithmetic.linear(0, dict(form)), point) in Interval(*known)
        compared += 1
    assert compared > 0
