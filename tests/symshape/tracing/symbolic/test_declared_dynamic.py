"""What was declared dynamic stays dynamic, or the error names the lines that fixed it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from guards.sets.sources import Size
from guards.terms import boolean, division
from symshape import ConstraintViolation, Dim, Policy
from symshape.tracing.outputs import check_promises
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.int_node import IntNode


@pytest.fixture
def env() -> ShapeEnv:
    return ShapeEnv()


def size(env: ShapeEnv, name: str, hint: int, dim: Dim | Policy = Policy.AUTO) -> IntNode:
    return env.new_symbol(name, hint, Size("x", len(env.symbols)), dim)


@pytest.mark.parametrize(
    ("fix", "fixed"),
    [
        (lambda env, s, t: env.evaluate(boolean.eq(s.term, 5)), True),
        (
            lambda env, s, t: (
                env.evaluate(boolean.le(s.term, 5)),
                env.evaluate(boolean.ge(s.term, 5)),
            ),
            True,
        ),
        (
            lambda env, s, t: (
                env.evaluate(boolean.eq(s.term, t.term)),
                env.evaluate(boolean.eq(t.term, 5)),
            ),
            True,
        ),
        (lambda env, s, t: env.evaluate(boolean.eq(s.term, t.term)), False),
        (lambda env, s, t: env.evaluate(boolean.le(s.term, 5)), False),
        (lambda env, s, t: env.evaluate(boolean.eq(division.mod(s.term, 5), 0)), False),
    ],
)
def test_declared_dynamic(env: ShapeEnv, fix: Callable[..., object], fixed: bool) -> None:
    s, t = size(env, "s0", 5, Policy.DYNAMIC), size(env, "s1", 5)
    check_promises(env)
    fix(env, s, t)
    if fixed:
        with pytest.raises(ConstraintViolation, match="fixes it to 5"):
            check_promises(env)
    else:
        check_promises(env)


def test_the_lines_that_fix_it_are_named(env: ShapeEnv) -> None:
    s = size(env, "s0", 5, Policy.DYNAMIC)
    env.evaluate(boolean.le(s.term, 5))
    env.evaluate(boolean.ge(s.term, 5))
    with pytest.raises(ConstraintViolation) as raised:
        check_promises(env)
    assert (raised.value.symbol, raised.value.source) == ("s0", "x.size(0)")
    assert str(raised.value).count("test_declared_dynamic.py") == 2
    assert "env.evaluate(boolean.ge(s.term, 5))" in str(raised.value)


def test_a_dim_of_one_value_promises_nothing(env: ShapeEnv) -> None:
    s = size(env, "n", 5, Dim("n", min=5, max=5))
    assert env.specialize(s.term) == 5
    check_promises(env)
    t = size(env, "m", 5, Dim("m", min=4, max=6))
    env.specialize(t.term)
    with pytest.raises(ConstraintViolation, match="m"):
        check_promises(env)
