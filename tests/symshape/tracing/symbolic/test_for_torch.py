"""What torch's own code asks of ``node.shape_env``."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental import symbolic_shapes

from guards.sets.sources import Size
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
    for fallback, ask in (
        (False, symbolic_shapes.guard_or_false),
        (True, symbolic_shapes.guard_or_true),
    ):
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
    assert asked._maybe_evaluate_static((u >= 10).expr) is False
    assert asked._maybe_evaluate_static((u >= 9).expr) is None
    assert asked._maybe_evaluate_static(s.sym_float().expr) is None


def test_symbols_of_numbers() -> None:
    """Torch's helpers tell numbers that are computed from data from sizes of arguments, whatever
    these are called.
    """
    env = ShapeEnv()
    size, users = (
        env.new_symbol(name, 6, Size("x", i), Policy.AUTO) for i, name in enumerate(("s0", "users"))
    )
    number, fraction = env.new_unbacked(0, 9), env.new_float()
    of_arguments = [torch.SymInt(size), torch.SymInt(users), torch.SymInt(size.mul(users))]
    of_data = [torch.SymInt(number), torch.SymInt(size.add(number)), torch.SymFloat(fraction)]
    for numbers, are_of_data in ((of_arguments, False), (of_data, True)):
        for each in (*numbers, numbers, {"n": numbers[0]}):
            assert symbolic_shapes.has_free_unbacked_symbols(each) is are_of_data
            assert bool(symbolic_shapes.free_unbacked_symbols(each)) is are_of_data
            assert symbolic_shapes.has_free_symbols(each)
    assert len(symbolic_shapes.free_symbols(of_arguments)) == 2
    assert not symbolic_shapes.has_free_symbols(torch.SymInt(size.wrap_int(3)))
    assert size.expr == size.add(size.wrap_int(1)).sub(size.wrap_int(1)).expr != users.expr
    assert {size.expr: 1}[size.expr] == 1
