"""What torch's own code asks of ``node.shape_env``."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental import symbolic_shapes

from guards.sets.sources import Size
from guards.terms import boolean
from symshape import DataDependentError, Policy
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.bool_node import BoolNode


def condition(env: ShapeEnv, node: object) -> torch.SymBool:
    assert isinstance(node, BoolNode)
    return torch.SymBool(node)


def test_questions_of_torch() -> None:
    env = ShapeEnv()
    s = env.new_symbol("s0", 5, Size("x", 0), Policy.AUTO)
    u = env.new_unbacked(0, 9)
    assert symbolic_shapes.statically_known_true(condition(env, u >= 0))
    assert not symbolic_shapes.statically_known_true(condition(env, s == 5))
    for fallback, ask in ((False, symbolic_shapes.guard_or_false), (True, symbolic_shapes.guard_or_true)):
        assert ask(condition(env, u == 3)) is fallback
    assert env.guards == []
    assert symbolic_shapes.guard_or_false(condition(env, s == 5)) is True
    assert [str(guard.term) for guard in env.guards] == ["s0 == 5"]


def test_values_of_nodes() -> None:
    env = ShapeEnv()
    s = env.new_symbol("s0", 6, Size("x", 0), Policy.AUTO)
    u = env.new_unbacked(0, 9)
    asked = env.for_torch
    assert s.shape_env is u.shape_env is asked
    assert asked.evaluate_sym_node(s.sym_float()) == 6.0
    assert asked.evaluate_sym_node(s) == 6
    assert asked.evaluate_sym_node(u == 3, fallback_value=True) is True
    with pytest.raises(DataDependentError):
        asked.evaluate_sym_node(u == 3)
    assert asked._maybe_evaluate_static(boolean.ge(u.term, 10)) is False
    assert asked._maybe_evaluate_static(boolean.ge(u.term, 9)) is None
    assert asked._maybe_evaluate_static(s.sym_float().term) is None
