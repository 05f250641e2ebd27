"""Operators of sizes in their three forms: two nodes, size and number, number and size."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from guards.sets.sources import Size
from guards.terms import arithmetic, boolean, division
from symshape import Policy
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.int_node import IntNode, lifted


@pytest.fixture
def env() -> ShapeEnv:
    return ShapeEnv()


def size(env: ShapeEnv, hint: int) -> IntNode:
    return env.new_symbol(f"s{len(env.symbols)}", hint, Size("x", len(env.symbols)), Policy.AUTO)


def guards_of(env: ShapeEnv) -> list[str]:
    return [str(guard.term) for guard in env.guards]


@pytest.mark.parametrize(
    ("name", "operation", "apply"),
    [
        ("add", arithmetic.add, lambda a, b: a + b),
        ("sub", arithmetic.sub, lambda a, b: a - b),
        ("mul", arithmetic.mul, lambda a, b: a * b),
        ("int_floordiv", division.floordiv, lambda a, b: a // b),
        ("mod", division.mod, lambda a, b: a % b),
    ],
)
def test_the_three_forms_agree(env: ShapeEnv, name: str, operation: Any, apply: Any) -> None:
    s, t = size(env, 7), size(env, 2)
    assert getattr(s, name)(t).term is operation(s.term, t.term)
    assert apply(s, t).term is operation(s.term, t.term)
    assert apply(s, 3).term is operation(s.term, arithmetic.const(3))
    assert apply(17, s).term is operation(arithmetic.const(17), s.term)
    assert apply(s, t).hint == apply(7, 2)


@pytest.mark.parametrize(
    ("name", "operation"),
    [(name, getattr(boolean, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")],
)
def test_comparisons(env: ShapeEnv, name: str, operation: Any) -> None:
    s, t = size(env, 7), size(env, 2)
    assert getattr(s, name)(t).term is operation(s.term, t.term)
    assert getattr(s, f"__{name}__")(3).term is operation(s.term, arithmetic.const(3))
    assert env.guards == []


def test_a_divisor_that_may_be_zero_is_asked_for(env: ShapeEnv) -> None:
    s, zero = size(env, 7), size(env, 0)
    s % 3
    assert env.guards == []
    with pytest.raises(ZeroDivisionError, match="s0 by s1"):
        s // zero
    with pytest.raises(ZeroDivisionError):
        zero.int_floordiv(zero)
    17 // s
    assert guards_of(env) == ["s1 == 0", "s0 != 0"]


def test_what_stands_beside_a_size(env: ShapeEnv) -> None:
    s = size(env, 5)
    assert lifted(s, s) is s.term
    assert lifted(s, 3) is arithmetic.const(3)
    assert lifted(s, True) is arithmetic.ONE
    assert lifted(s, torch.SymInt(s)) is s.term
    assert lifted(s, env.nodes.bool_node(boolean.ge(s.term, 3))).symbols == {s.term}  # type: ignore[union-attr]
    assert lifted(s, 0.5) is None
    with pytest.raises(TypeError):
        s + "1"
    assert s.__add__(0.5) is NotImplemented
