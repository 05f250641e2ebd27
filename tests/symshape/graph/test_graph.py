"""Graphs as data: what is written to, what is dead, and how they read."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import symshape
from symshape.graph.graph import Assertion, Graph, values_in, written_values

R = torch.ones


def graph(fn: Any, *args: Any) -> Graph:
    return symshape.trace(fn, *args).graph


def mutated(fn: Any, *args: Any) -> list[str]:
    found = graph(fn, *args)
    names = {each.value: each.path for each in found.inputs} | {each.value: each.name for each in found.lifted}
    return [names[value] for value in found.mutated]


def test_mutated_inputs_through_views_and_keywords() -> None:
    assert mutated(lambda x, y: x + y, R(3), R(3)) == []
    assert mutated(lambda x, y: x.add_(y), R(3), R(3)) == ["x"]
    assert mutated(lambda x, y: y[1:].view(-1)[:1].zero_(), R(3), R(3)) == ["y"]
    assert mutated(lambda x, y: torch.add(x, 1, out=y), R(3), R(3)) == ["y"]
    assert mutated(lambda x, y: x.clone().add_(y), R(3), R(3)) == []
    assert mutated(lambda x, y: x.detach().copy_(y), R(3), R(3)) == ["x"]
    assert mutated(lambda x, y: x.unbind(0)[0].fill_(2), R(3, 2), R(3)) == ["x"]
    assert mutated(nn.BatchNorm1d(3), R(4, 3)) == ["num_batches_tracked", "running_mean", "running_var"]
    assert mutated(nn.BatchNorm1d(3).eval(), R(4, 3)) == []


def test_dead_code() -> None:
    def ops(fn: Any, *args: Any) -> list[str]:
        return [str(node.op).split(".")[1] for node in graph(fn, *args).nodes]

    assert ops(lambda x: (x.sin(), x.cos())[1], R(3)) == ["cos"]
    assert ops(lambda x: (x.sin().cos().view(-1), x)[1], R(3)) == []
    assert ops(lambda x: (x.clone().zero_(), x)[1], R(3)) == ["clone", "zero_"]  # writes are kept
    assert ops(lambda x: (torch.rand(3), x)[1], R(3)) == ["rand"]  # the generator moves
    assert ops(lambda x: ((x > 0).nonzero(), x)[1], R(3)) == ["gt", "nonzero"]  # it binds a symbol
    assert ops(lambda x: x.split(2)[0], R(6)) == ["split"]


def test_randomness() -> None:
    assert not graph(lambda x: x + 1, R(3)).uses_randomness
    for fn in (lambda x: torch.rand(3), lambda x: nn.functional.dropout(x), lambda x: x.bernoulli()):
        assert graph(fn, R(3)).uses_randomness


def test_storages() -> None:
    found = graph(lambda x: (x.view(-1)[1:], x.clone(), x.t()), R(2, 3))
    x = found.inputs[0].value
    assert [value.storage is x.storage for value in values_in(found.outputs)] == [True, False, True]


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


def test_origins_of_nodes() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x)

    (node,) = graph(fn, R(3)).nodes
    assert node.origin.text == "return nn.functional.gelu(x)"
    assert node.origin.file == __file__
    assert "fn" in node.origin.function
    assert not list(written_values(node))
