"""Sums and products: one canonical form, and the values of integers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guards.asking.reading import parse
from guards.terms import arithmetic, division
from guards.terms.arithmetic import add, symbol
from guards.terms.boolean import le
from guards.terms.division import mod
from guards.terms.fold import evaluate
from guards.terms.term import Op
from tests.oracles import SPACE, code
from tests.strategies import integers

x, y, z = symbol("x"), symbol("y"), symbol("z")


@pytest.mark.parametrize(("one", "other"), [("x + y", "y + x"), ("(x + 1)*(x - 1)", "x*x - 1")])
def test_equal_terms_are_one_object(one: str, other: str) -> None:
    assert parse(one) is parse(other)


@settings(max_examples=300, deadline=None)
@given(integers(), st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_constructors_keep_the_value_of_integers(text: str, a: int, b: int, c: int) -> None:
    point = {"x": a, "y": b, "z": c}
    try:
        wanted = eval(code(text), SPACE, point)
        term = parse(text)
    except (ZeroDivisionError, ValueError):
        return
    assert evaluate(term, point) == wanted


def test_operators_and_python_integers() -> None:
    assert 1 + x is x + 1
    assert x - x is arithmetic.ZERO
    assert 3 - x is arithmetic.sub(3, x)
    assert 2 * x is x * 2
    assert -x is arithmetic.mul(-1, x)
    assert x // 2 is division.floordiv(x, 2)
    assert 7 // x is division.floordiv(7, x)
    assert x % 2 is mod(x, 2)
    assert 7 % x is mod(7, x)
    assert add(x, True) is x + 1


def test_only_integers_are_added() -> None:
    with pytest.raises(TypeError, match="integer term"):
        add(x, le(x, y))
    # the second is what a compiled module says
    with pytest.raises(TypeError, match=r"integer term|Term, int"):
        add(x, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="identifier"):
        symbol("not a name")


def test_parts_of_sums() -> None:
    """Splitting, dividing out and putting together again: nothing is lost."""
    rng = random.Random(14)
    for _ in range(300):
        a, b, c, k = (rng.randint(-6, 6) for _ in range(4))
        term = k * (a * x * y + b * x * z + c * x)
        constant, items = arithmetic.split(term)
        assert arithmetic.linear(constant, dict(items)) is term
        assert arithmetic.total([constant, *(arithmetic.scale(m, n) for m, n in items)]) is term
        number = arithmetic.content(term)
        if not number:
            assert term is arithmetic.ZERO
            continue
        assert number % k == 0
        common = arithmetic.common_atoms(term)
        assert x in common
        rest = arithmetic.without(term, common, number)
        assert arithmetic.mul(arithmetic.scale(rest, number), arithmetic.monomial(common)) is term
        one, other, atoms, factor = arithmetic.cancel(term, 2 * term)
        assert arithmetic.scale(one, 2) is other
        assert arithmetic.mul(arithmetic.scale(one, factor), arithmetic.monomial(atoms)) is term
    assert arithmetic.factors(x * y * x) == (x, x, y)
    assert arithmetic.prod([x, 2, y]) is 2 * x * y
    assert arithmetic.prod([]).op is Op.CONST
