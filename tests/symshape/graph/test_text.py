"""Graphs as people read them: shapes, ops, the user's lines, what binds a symbol and what is
asserted of it.
"""

from __future__ import annotations

import torch
from torch import nn

import symshape
from meta_fns import TensorSpec
from symshape.graph.steps import Assertion, Value
from symshape.graph.text import describe, describe_spec, text

R = torch.ones


def test_text() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        found = x[x > 0]
        torch._check(found.size(0) >= 1)
        return found.sum() + (x @ w).sum(dim=0)

    traced = symshape.trace(fn, R(2, 3), R(3, 4))
    shown = traced.print_readable(print_output=False)
    for line in (
        "  v0: f32[s0, s1] = x",
        "  v1: f32[s2, s3] = w",
        "  assert u0 >= 1",
        "aten.mm.default(v0, v1)",
        "-> u0",
        "return [",
    ):
        assert line in shown
    assert "found = x[x > 0]" in shown  # the user's lines
    assert str(traced.graph) == shown
    assert any(isinstance(step, Assertion) for step in traced.graph.steps)


def test_dtypes_and_sizes() -> None:
    spec = TensorSpec.contiguous((2, 3), torch.bfloat16, torch.device("cpu"))
    assert describe_spec(spec) == describe(Value(0, spec, object())) == "bf16[2, 3]"
    assert describe_spec(spec.with_(dtype=torch.complex64)) == "complex64[2, 3]"
    assert describe_spec(TensorSpec.of(torch.tensor(1))) == "i64[]"


def test_what_is_lifted_and_what_is_returned() -> None:
    layer = nn.Linear(3, 4)
    shown = text(
        symshape.trace(lambda x: {"y": layer(x), "n": x.size(0), "s": "text"}, R(2, 3)).graph
    ).splitlines()
    assert shown[0] == "inputs:"
    assert shown[2] == "lifted:"
    assert {line.partition(" = ")[2] for line in shown[3:5]} == {"layer.weight", "layer.bias"}
    assert shown[-1].endswith(", s0, 'text']")


def test_a_line_of_the_user_is_shown_where_it_changes() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.sin().cos()
        return y.tan()

    lines = text(symshape.trace(fn, R(2)).graph).splitlines()
    comments = [number for number, line in enumerate(lines) if line.startswith("  # ")]
    assert ["sin()" in lines[n] or "tan()" in lines[n] for n in comments] == [True, True]
    assert comments[1] - comments[0] == 3  # two steps of the first line between them
