"""Splitting into the values of a symbol's short range."""

from __future__ import annotations

import pytest

from guards.asking.assumptions import facts_from
from guards.deciders.case_split import refutes as refuted_by_cases
from guards.terms.arithmetic import const, symbol
from guards.terms.boolean import ne

x = symbol("x")


@pytest.mark.parametrize(("low", "high"), [(0, 3), (-1, 2), (-3, 0), (2, 5)])
def test_cases_try_the_values_of_a_short_range(low: int, high: int) -> None:
    """One case for each value, where zero and negative ends are ends like others."""
    component = facts_from({"x": (low, high)}).component(x)
    vanishing = const(1)
    for value in range(low, high + 1):
        vanishing = vanishing * (x - value)
    assert refuted_by_cases(component, ne(vanishing, 0))
    assert not refuted_by_cases(component, ne(vanishing, vanishing * 0 + 1000))
