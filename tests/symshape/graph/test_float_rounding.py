"""What floats say of integers: held to Python's own arithmetic, exhaustively for small integers and
at random above.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guards.asking.reading import parse
from guards.terms import fold
from guards.terms.term import Term
from symshape.graph.float_rounding import LARGEST, LOGARITHMS, Monotone, monotone, rounded_ratio
from symshape.graph.float_terms import FloatTerm, float_term

N = parse("n")
FLOAT = float_term("from_int", N)
CONSTANTS = [i / 100 for i in range(1, 100)] + [
    0.1 * 3,
    1 / 3,
    2 / 3,
    1 / 7,
    1.1,
    1.7,
    2.9,
    0.125,
    1e-3,
    0.333,
    12.34,
]
CONSTANTS += [math.nextafter(0.3, 1), math.nextafter(0.3, 0)]


def integers_for(number: float, seed: int) -> list[int]:
    """All small ones, and larger ones, many of them such that the product is nearly an integer or a
    half.
    """
    draw = random.Random(seed)
    top, bottom = number.as_integer_ratio()
    near = [round(draw.randrange(1, 2**36) * step / number) for step in (1, 0.5) for _ in range(20)]
    several = [
        draw.randrange(1, 2**30) * parts for parts in (10, 20, 100, 200, 7, 3) for _ in range(8)
    ]
    powers = [2**i + j for i in range(3, 40, 3) for j in (-1, 0, 1)]
    return [*range(250), *near, *several, *powers, bottom % 2**40, top % 2**40]


def _nearest(top: int, bottom: int) -> int:
    """The nearest integer to a quotient, of two the even one."""
    found = (2 * top + bottom) // (2 * bottom)
    return found - found % 2 if (2 * top + bottom) % (2 * bottom) == 0 else found


@pytest.mark.parametrize("op", ["mul", "truediv"])
def test_rounded_ratios_hold_for_every_integer(op: str) -> None:
    """Floor, ceiling and the nearest integer are those of the quotient wherever it is said so."""
    kinds, farther = set(), 0
    for seed, number in enumerate(CONSTANTS):
        term = float_term(op, FLOAT, number)
        found = rounded_ratio(term)
        assert isinstance(term, FloatTerm)
        if found is None:
            assert number in (math.nextafter(0.3, 1), math.nextafter(0.3, 0))
            continue
        kinds.add(found.off)
        for n in integers_for(number, seed):
            for size in (n, -n):
                value, top, bottom = (
                    term.evaluate({"n": size}),
                    fold.evaluate(found.numerator, {"n": size}),
                    found.denominator,
                )
                if 4 * abs(top) >= LARGEST:
                    continue
                off = found.off if top > 0 else -found.off
                whole, half = top % bottom == 0, (2 * top + bottom) % (2 * bottom) == 0
                if whole and off == 0:
                    assert value == top // bottom
                farther += whole and off != 0 and value != top // bottom
                if not whole or off >= 0:
                    assert math.floor(value) == top // bottom, (number, size)
                if not whole or off <= 0:
                    assert math.ceil(value) == -(-top // bottom), (number, size)
                if not half or off == 0:
                    assert round(value) == _nearest(top, bottom), (number, size)
    assert kinds == {0, 1, -1}
    assert farther > 0  # or nothing would have to be asked


def test_what_is_no_rounded_ratio() -> None:
    """Two symbols, roundings of roundings, constants that nobody wrote down."""
    other = float_term("from_int", parse("m"))
    for term in (
        float_term("mul", FLOAT, other),
        float_term("mul", float_term("mul", float_term("truediv", N, 3.0), 0.3), 0.7),
        float_term("mul", FLOAT, -0.3),
        float_term("mul", FLOAT, math.pi),
        float_term("truediv", 0.3, FLOAT),
        float_term("mul", FLOAT, math.inf),
        float_term("sqrt", FLOAT),
        2.5,
    ):
        assert rounded_ratio(term) is None, term


@pytest.mark.parametrize(
    "first", [("mul", 1.1), ("truediv", 6.0), ("truediv", 60.0), ("mul", 0.7), ("truediv", 8.0)]
)
@pytest.mark.parametrize(
    "then", [("mul", 1.25), ("mul", 0.3), ("truediv", 8.0), ("truediv", 7.0), ("mul", 2.0)]
)
def test_capacities(first: tuple[str, float], then: tuple[str, float]) -> None:
    """``n / experts * factor``: rounded twice, and known wherever that is no integer."""
    term = float_term(then[0], float_term(first[0], FLOAT, first[1]), then[1])
    found = rounded_ratio(term)
    assert isinstance(term, FloatTerm)
    assert found is not None
    for n in (*range(2000), *(2**k + d for k in range(11, 40) for d in (-1, 0, 1, 60))):
        value, top = term.evaluate({"n": n}), fold.evaluate(found.numerator, {"n": n})
        if top % found.denominator:
            assert (math.floor(value), math.ceil(value)) == (
                top // found.denominator,
                -(-top // found.denominator),
            )
        else:
            assert found.off or value == top // found.denominator


CHAIN = st.lists(
    st.tuples(
        st.sampled_from(["add", "sub", "mul", "truediv", "rsub", "radd", "rmul", "neg", "sqrt"]),
        st.floats(-1e6, 1e6, allow_nan=False)
        | st.sampled_from([0.3, 0.7, 1e300, -1e-300, 0.0, 2.0, 5e-324]),
    ),
    min_size=1,
    max_size=5,
)


def _built(chain: list[tuple[str, float]]) -> Any:
    term: Any = FLOAT
    for op, number in chain:
        if op in ("neg", "sqrt"):
            term = float_term(op, term)
        elif op.startswith("r"):
            term = float_term(op[1:], number, term)
        else:
            term = float_term(op, term, number)
    return term


def _value(term: Any, n: int) -> float | None:
    try:
        return term.evaluate({"n": n})  # type: ignore[no-any-return]
    except (ArithmeticError, ValueError):
        return None


def _rounded(value: float | None, whole: Any) -> float | None:
    if value is None or whole is None:
        return value
    return whole(value) if math.isfinite(value) else None  # type: ignore[no-any-return]


COMPARE: dict[str, Callable[[float, float], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
}


@settings(max_examples=400, deadline=None)
@given(
    CHAIN,
    st.sampled_from(sorted(COMPARE)),
    st.floats(-1e6, 1e6),
    st.integers(0, 2**40),
    st.booleans(),
)
def test_where_a_comparison_holds(
    chain: Any, relation: str, constant: float, n: int, of_its_own: bool
) -> None:
    """The integers are those for which the comparison is true, at the turns and anywhere else."""
    found = monotone(_built(chain))
    if found is None:
        return
    _hold_to_python(found, _built(chain), relation, constant, n, of_its_own)


def _hold_to_python(
    found: Monotone,
    term: Any,
    relation: str,
    constant: float,
    n: int,
    of_its_own: bool,
    whole: Any = None,
) -> None:
    assert found.of is N
    if of_its_own:  # so that equality is met
        value = _value(term, n)
        constant = constant if value is None or not math.isfinite(value) else value
    for least in (0, -LARGEST):
        try:
            first, end = found.where(relation, constant, least)
        except (ArithmeticError, ValueError):
            assert any(_rounded(_value(term, each), whole) is None for each in (least, LARGEST))
            continue
        for each in {n, n + 1, 0, 1, first - 1, first, end - 1, end, LARGEST, least, -n}:
            if least <= each <= LARGEST:
                value = _rounded(_value(term, each), whole)
                # or a call would pass where the program raises
                assert value is not None, (str(term), each)
                holds = COMPARE[relation](value, constant)
                assert holds == (first <= each < end), (str(term), relation, constant, each)


@settings(max_examples=150, deadline=None)
@given(CHAIN, st.sampled_from([math.floor, math.ceil, math.trunc, round]), st.integers(0, 2**30))
def test_where_it_is_rounded_to_the_same(chain: Any, whole: Any, n: int) -> None:
    """All integers that give the same one."""
    found, value = monotone(_built(chain)), _value(_built(chain), n)
    if found is None or value is None or abs(value) > 2**50:
        return
    _hold_to_python(found.rounded(whole), _built(chain), "eq", float(whole(value)), n, False, whole)


@pytest.mark.parametrize("op", LOGARITHMS)
@pytest.mark.parametrize("bottom", [1.0, 3.0, 1000.0])
def test_logarithms_rise(op: str, bottom: float) -> None:
    """Where the largest that are looked at lie closest together too; beyond that nothing is
    said.
    """
    term = float_term(op, float_term("truediv", FLOAT, bottom))
    found = monotone(term)
    assert isinstance(term, FloatTerm)
    assert found is not None
    assert found.rises
    for start in (1, 2**20 - 50, 2**30 - 50, found.most - 100):
        values = [found.value(n) for n in range(start, start + 100)]
        assert values == [term.evaluate({"n": n}) for n in range(start, start + 100)]
        assert all(one < other for one, other in pairwise(values))
        first, end = found.where("ge", values[50], 1)
        assert (first, end) == (start + 50, found.most + 1)


def test_what_does_not_rise_or_fall_with_one_integer() -> None:
    """Other functions, two integers, a float that only a run knows, a division by the integer."""
    unknown = FloatTerm("symbol", symbol="f0")
    for term in (
        float_term("mul", FLOAT, FLOAT),
        float_term("exp", FLOAT),
        float_term("log", float_term("sqrt", FLOAT)),
        float_term("truediv", 1.0, FLOAT),
        float_term("mul", FLOAT, 0.0),
        float_term("add", FLOAT, math.nan),
        unknown,
        float_term("add", FLOAT, unknown),
        2.5,
    ):
        assert monotone(term) is None, term
    assert isinstance(N, Term)
