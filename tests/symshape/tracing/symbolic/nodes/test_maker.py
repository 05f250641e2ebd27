"""Nodes are made once; constants are plain numbers."""

from __future__ import annotations

import pytest

from guards.sets.sources import Size
from guards.terms import arithmetic, boolean
from symshape import Dim, Policy
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.int_node import IntNode


@pytest.fixture
def env() -> ShapeEnv:
    return ShapeEnv()


def size(env: ShapeEnv, name: str, hint: int, dim: Dim | Policy = Policy.AUTO) -> IntNode:
    return env.new_symbol(name, hint, Size("x", len(env.symbols)), dim)


def test_one_node_for_a_term(env: ShapeEnv) -> None:
    s, t = size(env, "s0", 5), size(env, "s1", 3)
    assert (s + t) is (t + s)
    assert s + 0 is s
    assert s - s == 0
    assert type(s * 0) is int
    assert (s + t).symint is (t + s).symint


def test_constants_are_plain(env: ShapeEnv) -> None:
    s = size(env, "s0", 5)
    assert env.nodes.size(s.term) is s
    two = arithmetic.const(2)
    node = env.nodes.int_node(two)
    assert node.maybe_as_int() == 2
    assert type(env.nodes.size(two)) is int  # though there is a node for it
    assert env.nodes.condition(boolean.TRUE) is True
    assert env.nodes.condition(boolean.FALSE) is False
    asked = env.nodes.condition(boolean.eq(s.term, 2))
    assert isinstance(asked, BoolNode)
    assert asked.term is boolean.eq(s.term, 2)


def test_what_was_combined_is_remembered(env: ShapeEnv) -> None:
    calls = []

    def add(a: object, b: object) -> object:
        calls.append((a, b))
        return arithmetic.add(a, b)  # type: ignore[arg-type]

    s, one = size(env, "s0", 5).term, arithmetic.ONE
    found = [env.nodes.combine(add, a, b) for a, b in ((s, one), (s, one), (one, s))]  # type: ignore[arg-type]
    assert len(set(found)) == 1
    assert calls == [(s, one), (one, s)]
