"""The greater, the lesser and the chosen, decided where the facts decide."""

from __future__ import annotations

import pytest

from guards.sets.sources import Size
from guards.terms import arithmetic, boolean, extremes
from symshape import Dim, Policy
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes import choices
from symshape.tracing.symbolic.nodes.int_node import IntNode


@pytest.fixture
def env() -> ShapeEnv:
    return ShapeEnv()


def size(env: ShapeEnv, name: str, hint: int, dim: Dim | Policy = Policy.AUTO) -> IntNode:
    return env.new_symbol(name, hint, Size("x", len(env.symbols)), dim)


def test_maximum_minimum_and_choice_use_the_facts(env: ShapeEnv) -> None:
    s = size(env, "s0", 5)
    one = arithmetic.ONE
    assert str(choices.maximum(env.known, s.term, one)) == "max(s0, 1)"
    env.evaluate(boolean.ge(s.term, 2))
    assert choices.maximum(env.known, s.term, one) is s.term
    assert choices.minimum(env.known, s.term, one) is one
    assert choices.ite(env.known, boolean.ge(s.term, 1), s.term, one) is s.term
    assert choices.ite(env.known, boolean.lt(s.term, 1), one, s.term) is s.term
    assert choices.ite(env.known, boolean.ge(s.term, 4), s.term, one).symbols == {s.term}
    assert [str(guard.term) for guard in env.guards] == ["s0 >= 2"]  # asking left none


def test_terms_are_tidied_by_what_is_known(env: ShapeEnv) -> None:
    s, t = size(env, "s0", 5).term, size(env, "s1", 3).term
    term = arithmetic.add(extremes.maximum(s, t), extremes.minimum(s, arithmetic.const(4)))
    assert choices.tidy(env.known, term) is term
    env.evaluate(boolean.ge(s, t))
    assert choices.tidy(env.known, term) is arithmetic.add(
        s, extremes.minimum(s, arithmetic.const(4))
    )
    env.evaluate(boolean.ge(s, 4))
    assert choices.tidy(env.known, term) is arithmetic.add(s, arithmetic.const(4))
