"""The state of learning: ranges wait as conditions, and a change forgets what was worked out."""

from __future__ import annotations

from guards.asking.reading import parse
from guards.facts.component import Component
from guards.facts.learning import Learning
from guards.terms.arithmetic import symbol

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
