"""Floats of sizes: exact ratios stay conditions on integers, everything else fixes the size."""

from __future__ import annotations

import math

import pytest

from guards.sets.sources import Size
from guards.terms import boolean, division
from symshape import Policy
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.float_node import FloatNode
from symshape.tracing.symbolic.nodes.int_node import IntNode


@pytest.fixture
def env() -> ShapeEnv:
    return ShapeEnv()


def size(env: ShapeEnv, hint: int) -> IntNode:
    return env.new_symbol(f"s{len(env.symbols)}", hint, Size("x", len(env.symbols)), Policy.AUTO)


def guards_of(env: ShapeEnv) -> list[str]:
    return [str(guard.term) for guard in env.guards]


def test_an_exact_ratio_leaves_integer_conditions(env: ShapeEnv) -> None:
    s = size(env, 7)
    half = s.int_truediv(s.wrap_int(2))
    assert half.hint == 3.5
    assert half.floor().term is division.floordiv(s.term, 2)
    assert half.ceil().hint == math.ceil(3.5)
    assert half.is_integer().term is boolean.eq(division.mod(s.term, 2), 0)
    for name, expected in (
        ("eq", False),
        ("ne", True),
        ("lt", True),
        ("le", True),
        ("gt", False),
        ("ge", False),
    ):
        condition = getattr(half, name)(s)
        assert condition.hint is expected
        assert condition.term.symbols == {s.term}
    assert env.guards == []
    assert half.trunc().hint == 3


@pytest.mark.parametrize("hint", [5, 6, 8, 9])
def test_rounded_down_and_up_as_python_does(hint: int) -> None:
    env = ShapeEnv()
    s = size(env, hint)
    for divisor in (1, 2, 3, 4):
        quotient = s.int_truediv(s.wrap_int(divisor))
        assert quotient.floor().hint == math.floor(hint / divisor)
        assert quotient.ceil().hint == math.ceil(hint / divisor)
        assert quotient.neg().trunc().hint == math.trunc(-hint / divisor)


def test_other_floats_fix_the_size(env: ShapeEnv) -> None:
    s = size(env, 4)
    exponential = s.sym_float().sym_exp()
    assert exponential.hint == math.exp(4)
    assert env.guards == []
    assert exponential.gt(exponential.wrap_float(1.5)).bool_() is True
    assert guards_of(env) == ["s0 == 4"]


def test_logarithms_bound_a_size_within_limits(env: ShapeEnv) -> None:
    s = size(env, 4)
    logarithm = s.sym_float().sym_log2()
    assert logarithm.hint == 2.0
    assert env.guards == []
    assert logarithm.gt(logarithm.wrap_float(1.5)).bool_() is True
    assert guards_of(env) == ["s0 >= 1", f"s0 <= {2**40}", "s0 >= 3"]


def test_floats_that_rise_with_a_size_bound_it(env: ShapeEnv) -> None:
    s = size(env, 4)
    root = s.sym_float().sym_sqrt()
    assert root.gt(root.wrap_float(1.5)).bool_() is True
    assert guards_of(env) == ["s0 >= 3"]
    assert root.floor().maybe_as_int() == 2
    assert guards_of(env) == ["s0 >= 3", "s0 >= 4", "s0 <= 8"]


def test_arithmetic_is_computed_where_all_is_plain(env: ShapeEnv) -> None:
    a, b = env.nodes.float_node(1.5), env.nodes.float_node(2.0)
    found = [
        getattr(a, name)(b)
        for name in ("add", "sub", "mul", "truediv", "pow", "mod", "sym_max", "sym_min")
    ]
    assert [each.maybe_as_float() for each in found] == [3.5, -0.5, 3.0, 0.75, 2.25, 1.5, 2.0, 1.5]
    assert a.neg().maybe_as_float() == -1.5
    assert a.round().maybe_as_int() == 2
    s = size(env, 4)
    mixed = a.add(s)
    assert isinstance(mixed, FloatNode)
    assert mixed.hint == 5.5
    assert s.sym_max(mixed).hint == 5.5
    assert s.sym_min(mixed).hint == 4.0
