"""The arguments of an op call, for the rule and for the graph."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental import symbolic_shapes

from guards.sets.sources import Size
from guards.terms import arithmetic, boolean
from meta_fns import TensorSpec
from symshape import Policy, SymShapeError, UnsupportedError
from symshape.tracing.op_arguments import OpArguments
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.tracer import Tracer

R = torch.randn


def taken(generators: set[int] | None = None) -> tuple[Tracer, OpArguments]:
    tracer = Tracer(ShapeEnv())
    return tracer, OpArguments(tracer, tracer.lifting, tracer.saved, generators)


def test_tensors_sizes_and_plain_values() -> None:
    tracer, arguments = taken()
    s = tracer.env.new_symbol("s0", 5, Size("x", 0), Policy.AUTO)
    x = tracer.input_tensor(
        TensorSpec.contiguous((s, 3), torch.float32, torch.device("cpu")), False
    )
    real = R(3)
    specs, values = arguments.both((x, [s.symint, 2], real, None, 1.5, "mean"))
    assert specs[0] is x._spec
    assert specs[1:2] == [[s, 2]]
    assert specs[3:] == [None, 1.5, "mean"]
    assert values[0] is x._value
    assert values[1] == (s.term, 2)
    assert values[2] is tracer.lifting.lifted[id(real)].value
    assert values[3:] == (None, 1.5, "mean")


def test_constant_symbols_are_plain() -> None:
    tracer, arguments = taken()
    nodes = tracer.env.nodes
    given = (
        torch.SymInt(nodes.int_node(arithmetic.const(4))),
        torch.SymBool(nodes.bool_node(boolean.TRUE)),
        torch.SymFloat(nodes.float_node(2.5)),
    )
    assert arguments.both(given) == ([4, True, 2.5], (4, True, 2.5))
    assert arguments.keywords({"dim": given[0]}) == ({"dim": 4}, {"dim": 4})
    assert arguments.keywords({}) == ({}, {})


def test_what_belongs_elsewhere_is_refused() -> None:
    tracer, arguments = taken(generators=set())
    other, _ = taken()
    x = other.input_tensor(TensorSpec.of(R(3)), False)
    with pytest.raises(UnsupportedError, match="an earlier trace"):
        arguments.both((x,))
    with pytest.raises(UnsupportedError, match=r"creates a torch\.Generator"):
        arguments.keywords({"generator": torch.Generator()})
    theirs = symbolic_shapes.ShapeEnv().create_unbacked_symint()
    with pytest.raises(SymShapeError, match="another tracer"):
        arguments.both((theirs,))
    assert tracer.steps == []
