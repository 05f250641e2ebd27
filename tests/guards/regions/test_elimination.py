"""Elimination: what is left holds at all points of the shadow, and where it is said to be exact at
no other.
"""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guards import GuardSet, Term, parse
from guards.facts.definedness import guarded, satisfied
from guards.regions.elimination import eliminate
from guards.terms.arithmetic import symbol
from guards.terms.boolean import FALSE, TRUE, and_, ge, le
from tests.guards.making import text_of_condition

S0, S1 = symbol("s0"), symbol("s1")


@pytest.mark.parametrize("a", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("b", [1, 2, 3, 4])
def test_two_bounds_leave_the_exact_integer_shadow(a: int, b: int) -> None:
    """`l <= a*s` and `b*s <= u`: the rational shadow `b*l <= a*u` is too wide where neither
    coefficient is 1.
    """
    low, high = symbol("low"), symbol("high")
    left, exact = eliminate([le(low, a * S0), le(b * S0, high)], {low, high})
    assert exact
    wider = 0
    for least, most in product(range(-8, 9), repeat=2):
        wanted = any(least <= a * value and b * value <= most for value in range(-20, 21))
        assert satisfied(left, {"low": least, "high": most}) is wanted, (least, most)
        wider += b * least <= a * most and not wanted
    assert bool(wider) is (a > 1 and b > 1)


def test_an_equation_leaves_a_remainder() -> None:
    left, exact = eliminate([parse("3*s0 + 2 == s1"), parse("s0 >= 4")], {S1})
    assert exact
    assert [value for value in range(30) if satisfied(left, {"s1": value})] == [
        14,
        17,
        20,
        23,
        26,
        29,
    ]


def test_an_equation_with_other_coefficients() -> None:
    """`4*s0 == 6*s1`, of which `10*s0 <= s2` is told: the multiple of the coefficients is
    compared.
    """
    s2 = symbol("s2")
    left, exact = eliminate([parse("2*s0 == 3*s1"), parse("10*s0 <= s2")], {S1, s2})
    assert exact
    for b, c in product(range(-3, 8), range(0, 80, 5)):
        assert satisfied(left, {"s1": b, "s2": c}) is (b % 2 == 0 and 15 * b <= c)


def test_nothing_is_asked_without_the_symbol() -> None:
    assert eliminate([ge(S0, 2), le(S0, S1)], {S0, S1}) == (and_(ge(S0, 2), le(S0, S1)), True)
    assert eliminate([ge(S0, 2)], {S1}) == (TRUE, True)
    assert eliminate([ge(S0, 2), le(S0, 1)], {S1}) == (FALSE, True)


def test_the_values_of_a_small_range() -> None:
    left, exact = eliminate([parse("s0 * s0 == s1"), parse("s0 >= -1"), parse("s0 <= 4")], {S1})
    assert exact
    assert {value for value in range(-5, 30) if satisfied(left, {"s1": value})} == {0, 1, 4, 9, 16}


def test_what_is_given_up_is_said() -> None:
    left, exact = eliminate([parse("s0 * s0 == s1"), parse("s1 >= 3")], {S1})
    assert not exact
    assert left is parse("s1 >= 3")


@given(st.integers(0, 2**40))
def test_elimination_keeps_every_point(seed: int) -> None:
    """Whatever the conditions are: what is left holds at all points of the shadow, and if exact at
    no other.
    """
    rng = random.Random(seed)
    names = ("s0", "s1", "s2")
    try:
        rows = [parse(text_of_condition(rng, names)) for _ in range(rng.randint(1, 3))]
    except ZeroDivisionError:
        return
    rows = [row for row in rows if row.is_bool]
    bounds = [parse(f"{name} >= -1 and {name} <= 6") for name in names]
    left, exact = eliminate(
        [guarded(row) for row in [*rows, *bounds]], {symbol("s0"), symbol("s1")}
    )
    whole: Term = and_(*rows, *bounds)
    for a, b in product(range(-2, 8), repeat=2):
        inside = any(satisfied(whole, {"s0": a, "s1": b, "s2": c}) for c in range(-1, 7))
        said = left is not FALSE and satisfied(left, {"s0": a, "s1": b})
        assert said or not inside, (rows, left, a, b)
        assert said == inside or not exact, (rows, left, a, b)


@pytest.mark.parametrize(
    "text",
    ["w % 3 + w // 3 == {} + 1", "min(w, 7) % 4 == {} % 3", "w // 4 * {} == 12", "w % 6 > {}"],
)
@pytest.mark.parametrize("name", ["a", "_k0_", "_k1_"])
def test_symbols_made_on_the_way_have_names_of_their_own(text: str, name: str) -> None:
    guards = GuardSet(text.format(name), ranges={"w": (0, 30), name: (-5, 20)})
    found = guards.project(name)
    wanted = {
        value
        for value in range(-5, 21)
        if any(guards.holds({name: value, "w": w}) for w in range(31))
    }
    assert found.exact
    assert {value for value in range(-9, 30) if found.guard_set.holds({name: value})} == wanted
