"""Where what ``needs`` asks for holds, the operation raises nothing: by Python's arithmetic, over
many numbers.
"""

from __future__ import annotations

import itertools
import math
import operator
import sys
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from symshape.graph import numpy_terms
from symshape.graph.float_domains import needs
from symshape.graph.float_terms import FUNCTIONS, OF_ONE, FloatTerm

_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "ne": operator.ne,
}
_ODD = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    709.0,
    710.0,
    -710.0,
    1e154,
    1e155,
    1e-160,
    1e-308,
    5e-324,
    sys.float_info.max,
)
_OF_NUMPY = frozenset(numpy_terms.FUNCTIONS) - {"np_pow"}
_UNARY = (
    "sqrt",
    "log",
    "log2",
    "log10",
    "log1p",
    "exp",
    "expm1",
    "sin",
    "cos",
    "tanh",
    "atan",
    "neg",
    "abs",
)
X, Y = FloatTerm("symbol", symbol="x"), FloatTerm("symbol", symbol="y")


def _check(term: FloatTerm, **values: float) -> bool:
    """Whether the needs hold; if so, the operation was computed."""
    needed = needs(term)
    if needed is None:
        return False
    for each in needed:
        assert isinstance(each.operand, FloatTerm)  # constants were computed
        if not _RELATIONS[each.relation](values[each.operand.symbol], each.constant):
            return False
    term.evaluate({}, values)
    return True


@pytest.mark.parametrize("op", _UNARY)
@given(x=st.floats(allow_nan=False, allow_infinity=False))
@example(x=0.0)
@example(x=709.0)
@example(x=sys.float_info.max)
def test_functions(op: str, x: float) -> None:
    _check(FloatTerm(op, (X,)), x=x)


@pytest.mark.parametrize("op", ["truediv", "mod", "add", "sub", "mul", "max", "min"])
def test_of_two_numbers(op: str) -> None:
    for x, y in itertools.product(_ODD, repeat=2):
        assert _check(FloatTerm(op, (X, Y)), x=x, y=y) is (op not in ("truediv", "mod") or y != 0)


@given(
    x=st.floats(allow_nan=False, allow_infinity=False),
    k=st.floats(-400, 400) | st.integers(-9, 9).map(float),
)
@example(x=0.0, k=-1.0)
@example(x=-1.0, k=0.5)
@example(x=1e155, k=2.0)
def test_powers(x: float, k: float) -> None:
    _check(FloatTerm("pow", (X, k)), x=x)
    if x > 0:
        _check(FloatTerm("pow", (x, Y)), y=k)


def test_powers_at_the_odd_numbers() -> None:
    for x, k in itertools.product((*_ODD, *(-each for each in _ODD)), repeat=2):
        _check(FloatTerm("pow", (X, k)), x=x)
        if x > 0:
            _check(FloatTerm("pow", (x, Y)), y=k)


def test_usual_numbers_are_let_through() -> None:
    for n in (1.0, 2.0, 7.0, 100.0):
        assert all(_check(FloatTerm(op, (X,)), x=n) for op in _UNARY)
        assert all(
            _check(FloatTerm("pow", (X, k)), x=n) for k in (-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0)
        )
        assert _check(FloatTerm("pow", (10000.0, Y)), y=-n / 100)
        assert _check(FloatTerm("pow", (0.9, Y)), y=n)


def test_all_that_may_raise_has_needs() -> None:
    """The operations that raise for a finite float, found by trying."""
    raising = set()
    for op, (function, _) in FUNCTIONS.items():
        for values in itertools.product((*_ODD, -2.5, math.inf), repeat=2):
            given = (
                values[:1]
                if op in (*_UNARY, *OF_ONE, "from_int", "as_float") or op in _OF_NUMPY
                else values
            )
            if op == "round" and not values[1].is_integer():
                continue
            try:
                function(*given)
            except (ArithmeticError, ValueError):
                if all(map(math.isfinite, given)) or op in ("sin", "cos"):
                    raising.add(op)
    without = {op for op in raising - {"round"} if needs(FloatTerm(op, (X, Y))) == ()}
    assert raising >= {"sqrt", "log", "log10", "exp", "pow", "truediv", "mod", "sin"}
    assert not without
