"""Graphs as data: what is written to, what shares memory, what draws random numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import symshape
from symshape.graph.graph import Graph
from symshape.graph.steps import values_in

R = torch.ones


def graph(fn: Any, *args: Any) -> Graph:
    return symshape.trace(fn, *args).graph


def mutated(fn: Any, *args: Any) -> list[str]:
    found = graph(fn, *args)
    names = {each.value: each.path for each in found.inputs} | {
        each.value: each.name for each in found.lifted
    }
    return [names[value] for value in found.mutated]


def test_mutated_inputs_through_views_and_keywords() -> None:
    assert mutated(lambda x, y: x + y, R(3), R(3)) == []
    assert mutated(lambda x, y: x.add_(y), R(3), R(3)) == ["x"]
    assert mutated(lambda x, y: y[1:].view(-1)[:1].zero_(), R(3), R(3)) == ["y"]
    assert mutated(lambda x, y: torch.add(x, 1, out=y), R(3), R(3)) == ["y"]
    assert mutated(lambda x, y: x.clone().add_(y), R(3), R(3)) == []
    assert mutated(lambda x, y: x.detach().copy_(y), R(3), R(3)) == ["x"]
    assert mutated(lambda x, y: x.unbind(0)[0].fill_(2), R(3, 2), R(3)) == ["x"]
    assert mutated(nn.BatchNorm1d(3), R(4, 3)) == [
        "num_batches_tracked",
        "running_mean",
        "running_var",
    ]
    assert mutated(nn.BatchNorm1d(3).eval(), R(4, 3)) == []


def test_storages() -> None:
    found = graph(lambda x: (x.view(-1)[1:], x.clone(), x.t()), R(2, 3))
    x = found.inputs[0].value
    assert [value.storage is x.storage for value in values_in(found.outputs)] == [True, False, True]


def test_randomness() -> None:
    assert not graph(lambda x: x + 1, R(3)).uses_randomness
    for fn in (
        lambda x: torch.rand(3),
        lambda x: nn.functional.dropout(x),
        lambda x: x.bernoulli(),
    ):
        assert graph(fn, R(3)).uses_randomness
