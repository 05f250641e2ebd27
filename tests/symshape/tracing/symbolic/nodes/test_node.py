"""What every node answers: its kind, its constant, its hint, its text."""

from __future__ import annotations

import pytest
import torch

from guards.sets.sources import Size
from guards.terms import boolean
from symshape import Policy
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.nodes.node import is_int_node


@pytest.fixture
def env() -> ShapeEnv:
    return ShapeEnv()


def size(env: ShapeEnv, hint: int) -> IntNode:
    return env.new_symbol(f"s{len(env.symbols)}", hint, Size("x", len(env.symbols)), Policy.AUTO)


def guards_of(env: ShapeEnv) -> list[str]:
    return [str(guard.term) for guard in env.guards]


def test_kinds(env: ShapeEnv) -> None:
    s = size(env, 5)
    nodes = (s, env.nodes.bool_node(boolean.ge(s.term, 3)), s.sym_float())
    assert [(n.is_int(), n.is_bool(), n.is_float()) for n in nodes] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    assert [n.pytype for n in nodes] == [int, bool, float]
    assert [n.hint for n in nodes] == [5, True, 5.0]
    assert not any(n.is_constant() or n.is_nested_int() for n in nodes)
    assert [is_int_node(each) for each in (*nodes, 5, None)] == [True, False, False, False, False]
    assert env.guards == []


def test_constants(env: ShapeEnv) -> None:
    s = size(env, 5)
    assert s.wrap_int(4).maybe_as_int() == 4
    assert s.wrap_bool(False).maybe_as_bool() is False
    assert s.wrap_float(2).maybe_as_float() == 2.0
    assert [n.is_constant() for n in (s.wrap_int(4), s.wrap_bool(True), s.wrap_float(0.5))] == [
        True
    ] * 3
    assert s.maybe_as_int() is None


def test_hints_of_unbacked_nodes(env: ShapeEnv) -> None:
    u = env.new_unbacked(0, 9)
    assert not u.has_hint()
    assert u.require_hint(7) == 7
    assert size(env, 5).require_hint(7) == 5


def test_texts_are_those_of_terms(env: ShapeEnv) -> None:
    s = size(env, 5)
    assert str(s + 1) == repr(s + 1) == (s + 1).str() == "s0 + 1"
    assert str(torch.SymInt(s)) == "s0"
    assert s.clone() is s
    assert s.expr.term is s.term
