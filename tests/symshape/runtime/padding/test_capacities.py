"""Capacities as formulas: what they compute, and that a program depends on nothing of them that is
not noted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from guards.terms import arithmetic
from meta_fns.core.layout import contiguous_strides, is_contiguous
from meta_fns.core.sizes import known, same
from symshape.runtime.padding.capacities import Capacities, Capacity

S0, S1 = arithmetic.symbol("s0"), arithmetic.symbol("s1")


@pytest.fixture
def capacities() -> Capacities:
    return Capacities({"s0": 8, "s1": 12})


def test_arithmetic_makes_formulas(capacities: Capacities) -> None:
    a, b = capacities.of(S0), capacities.of(S1)
    made = [
        a + b,
        a - 1,
        1 - a,
        2 * a * b,
        -a // 4,
        (3 * b) % 10,
        100 // b,
        100 % b,
        -(-b // 5) * 5,
    ]
    assert [each.value for each in made] == [20, 7, -7, 192, -2, 6, 8, 4, 15]
    assert (a * b) is (b * a), "one object for one formula"
    assert a - a == 0
    assert type(a - a) is int
    assert contiguous_strides((3, a, b))[0].term is S0 * S1
    assert capacities.agree({"s0": 16, "s1": 14}), "nothing was asked but what is 0 or 1"


def test_what_is_0_or_1_in_the_bucket_is_a_constant() -> None:
    """Tensors lie otherwise in memory at these sizes."""
    capacities = Capacities({"s0": 1, "s1": 4, "s2": 0})
    one, four, zero = (capacities.of(arithmetic.symbol(name)) for name in ("s0", "s1", "s2"))
    assert (one, zero) == (1, 0)
    assert four * one is four
    assert four // 4 == 1
    assert type(four // 4) is int
    assert capacities.agree({"s0": 1, "s1": 7, "s2": 0})
    for others in (
        {"s0": 2, "s1": 4, "s2": 0},
        {"s0": 1, "s1": 8, "s2": 0},
        {"s0": 1, "s1": 1, "s2": 0},
    ):
        assert not capacities.agree(others)
    assert not capacities.agree({"s0": 1, "s1": 4, "s2": 3})


def test_a_comparison_is_noted_with_its_answer(capacities: Capacities) -> None:
    a, b = capacities.of(S0), capacities.of(S1)
    assert [bool(each) for each in (a == 8, a != 8, a < b, a <= 7, a > b, b >= 12)] == [
        True,
        False,
        True,
        False,
        False,
        True,
    ]
    assert capacities.agree({"s0": 8, "s1": 12})
    assert not capacities.agree({"s0": 9, "s1": 12}), "it was asked whether it is 8"


def test_what_holds_for_any_capacities_is_not_noted(capacities: Capacities) -> None:
    a, b = capacities.of(S0), capacities.of(S1)
    assert a >= 2
    assert not a * b < 4
    assert a + b > a
    assert not capacities.decided
    assert not capacities.agree({"s0": 1, "s1": 12}), "a capacity of 1 is a constant"


def test_only_what_is_provable_is_known(capacities: Capacities) -> None:
    """Sizes that are equal in one bucket by chance are not the same."""
    a, b = capacities.of(S0), capacities.of(S1)
    assert not same(a, 8)
    assert not same(a + 4, b)
    assert same(a * b, b * a)
    assert known(a >= 1)
    assert not capacities.decided


@pytest.mark.parametrize(
    "need",
    [
        lambda a: int(a),
        lambda a: list(range(a)),
        lambda a: [0] * a,
        lambda a: a / 3,
        lambda a: 3.0 / a,
        lambda a: float(a),
        lambda a: a in {8, 9},
        lambda a: {8: "x"}[a],
        lambda a: hash(a),
    ],
)
def test_who_needs_the_integer_itself_depends_on_it(
    need: Callable[[Any], Any], capacities: Capacities
) -> None:
    need(capacities.of(S0))
    assert capacities.agree({"s0": 8, "s1": 3})
    assert not capacities.agree({"s0": 9, "s1": 12})


def test_a_tuple_is_compared_by_its_elements(capacities: Capacities) -> None:
    a, b = capacities.of(S0), capacities.of(S1)
    assert (a, b) == (8, 12)
    assert not capacities.agree({"s0": 8, "s1": 13})


@pytest.mark.parametrize(
    "ask", [bool, lambda c: c.hint, lambda c: c.guard_or_false(), lambda c: c.check("why")]
)
def test_every_way_to_ask_a_comparison_is_noted(
    ask: Callable[[Any], bool], capacities: Capacities
) -> None:
    assert ask(capacities.of(S0) == 8) is True
    assert not capacities.agree({"s0": 9, "s1": 12})


def test_comparisons_are_combined(capacities: Capacities) -> None:
    a, b = capacities.of(S0), capacities.of(S1)
    assert not ((a == 8) & (b == 13))
    assert (a == 9) | (b == 12)
    assert ~(a == 9)
    assert True & (a == 8)
    assert (a == 8).sym_ite(1, 2) == 1
    assert is_contiguous((a, b), (b, 1))
    assert (a.sym_max(b), a.sym_min(b), a.at_least_one()) == (b, a, a)


def test_division_by_what_may_be_zero_is_noted() -> None:
    capacities = Capacities({"s0": 3})
    assert 7 // (capacities.of(S0) - 1) == 3
    assert not capacities.agree({"s0": 1})
    with pytest.raises(ZeroDivisionError):
        5 % (capacities.of(S0) - 3)


def test_a_comparison_that_cannot_be_asked_elsewhere_does_not_agree() -> None:
    capacities = Capacities({"s0": 3})
    assert capacities.of(12 // (S0 - 1)) == 6
    assert not capacities.agree({"s0": 1})


def test_other_things_are_not_mixed_in(capacities: Capacities) -> None:
    a = capacities.of(S0)
    assert isinstance(a, Capacity)
    for wrong in (1.5, "8", None):
        with pytest.raises(TypeError):
            a + wrong
        with pytest.raises(TypeError):
            assert a < wrong
