"""Factoring, and the bounds that follow from the signs of factors."""

from __future__ import annotations

from guards import parse
from guards.deciders.factoring import factored_bounds, factors
from guards.facts.facts import Facts
from guards.terms.arithmetic import symbol

x, y = symbol("x"), symbol("y")
SIZE = (1, None)


def test_factors() -> None:
    assert factors(parse("x*x - y*y")) == (1, ((x - y, 1), (x + y, 1)))
    assert factors(parse("x + y")) is None
    assert factors(parse("x")) is None
    found = factors(parse("2*x*x*y + 4*x*y + 2*y"))
    assert found is not None
    assert found[0] == 2
    component = Facts.make({x: (None, None), y: (None, None)}).component(x + y)
    assert factored_bounds(component, parse("x*x - 2*x*y + y*y + 3")) == (3, None)
