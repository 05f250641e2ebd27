"""Relations and connectives: one canonical form, rounding towards the integers, and truth."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guards.asking.reading import parse
from guards.terms import boolean
from guards.terms.arithmetic import symbol
from guards.terms.boolean import FALSE, TRUE, eq, ge, gt, le, lt, ne, not_
from guards.terms.fold import evaluate
from tests.oracles import SPACE, code
from tests.strategies import conditions

x, y = symbol("x"), symbol("y")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2*x + 2*y <= 5", "x + y <= 2"),
        ("x < y", "y >= x + 1"),
        ("x == y", "y - x == 0"),
        ("not (x <= y)", "y < x"),
        ("x < 3 and x < 3", "x < 3"),
        ("x if 1 < 2 else y", "x"),
        ("x == 1 and not (x == 1)", "False"),
        ("x == 1 or x != 1", "True"),
        ("2*x == 2*y + 1", "False"),
    ],
)
def test_equal_terms_are_one_object(one: str, other: str) -> None:
    assert parse(one) is parse(other)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(conditions(), st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_constructors_keep_the_value_of_conditions(text: str, a: int, b: int, c: int) -> None:
    point = {"x": a, "y": b, "z": c}
    try:
        wanted = bool(eval(code(text), SPACE, point))
        term = parse(text)
        found = evaluate(term, point)
    except (ZeroDivisionError, ValueError):
        return
    assert found is wanted
    assert evaluate(not_(term), point) is not wanted


def test_relations_round_towards_the_integers() -> None:
    assert le(3 * x, 7) is le(x, 2)
    assert ge(3 * x, 7) is ge(x, 3)
    assert lt(2 * x, 5) is le(x, 2)
    assert gt(2 * x, 5) is ge(x, 3)
    assert eq(4 * x, 6) is FALSE
    assert ne(4 * x, 6) is TRUE


@pytest.mark.parametrize("a", [-4, -3, -2, 2, 3, 6])
@pytest.mark.parametrize("b", [-3, 0, 1, 2, 6])
@pytest.mark.parametrize("c", range(-7, 8))
def test_relations_of_sums_hold_where_they_should(a: int, b: int, c: int) -> None:
    left = a * x + b * y
    made = {
        "<": lt(left, c),
        "<=": le(left, c),
        ">": gt(left, c),
        ">=": ge(left, c),
        "==": eq(left, c),
        "!=": ne(left, c),
    }
    for at_x, at_y in product(range(-4, 5), repeat=2):
        value = a * at_x + b * at_y
        point = {"x": at_x, "y": at_y}
        for sign, term in made.items():
            assert evaluate(term, point) is eval(f"{value} {sign} {c}"), (sign, point)


def test_connectives() -> None:
    parts = [le(x, 3), ge(y, 1), eq(x, y), ne(x, 0)]
    both, either = boolean.and_(*parts), boolean.or_(*parts)
    assert not_(both) is boolean.or_(*map(not_, parts))
    assert boolean.and_() is TRUE
    assert boolean.or_() is FALSE
    assert boolean.and_(*parts, FALSE) is FALSE
    assert boolean.or_(*parts, TRUE) is TRUE
    assert boolean.and_(*reversed(parts), boolean.and_(*parts[:2])) is both
    for at_x, at_y in product(range(-2, 6), repeat=2):
        point = {"x": at_x, "y": at_y}
        truths = [evaluate(part, point) for part in parts]
        assert evaluate(both, point) is all(truths)
        assert evaluate(either, point) is any(truths)
        assert evaluate(boolean.ite(parts[0], x, y), point) == (at_x if truths[0] else at_y)


def test_only_conditions_are_connected() -> None:
    with pytest.raises(TypeError, match="condition is needed"):
        not_(x)
    with pytest.raises(TypeError, match=r"condition is needed|Term, bool"):
        boolean.and_(1)  # type: ignore[arg-type]
