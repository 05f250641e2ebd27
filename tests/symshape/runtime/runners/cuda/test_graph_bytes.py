"""Bytes counted from the sizes of tensors, against what torch allocates while a program runs."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import symshape
from symshape.cost.live_bytes import LiveBytes
from symshape.graph.interpreter import interpreter
from symshape.runtime.padding.planning import plan
from symshape.runtime.runners.cuda.graph_bytes import weight_of
from symshape.runtime.runners.padded.fusion import captured_graph


def test_buffers_and_results_are_its_own() -> None:
    traced = symshape.trace(lambda x: x.view(-1) * 2, torch.ones(4, 8))
    values = {"s0": 10, "s1": 6}
    found = weight_of(traced.program.graph, values)
    assert (found.own, found.shared) == (60 * 4 * 2, 0)


def test_what_comes_and_goes_is_shared() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            x = (x * 2).exp()
        return x.sum()

    found = weight_of(symshape.trace(program, torch.ones(100)).program.graph, {"s0": 100})
    assert found.own == 404
    assert found.shared == 800, "one is read while the next is written"


def test_views_and_writes_in_place_take_nothing() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = F.relu(x).t()
        y[1:].add_(1)
        y.mul_(2)
        return y[0].sum()

    found = weight_of(
        symshape.trace(program, torch.ones(10, 10)).program.graph, {"s0": 10, "s1": 10}
    )
    assert (found.own, found.shared) == (404, 400)


def test_parameters_are_not_counted() -> None:
    linear = torch.nn.Linear(8, 4)
    with torch.no_grad():
        found = weight_of(
            symshape.trace(linear, torch.ones(3, 8)).program.graph, {"s0": 3, "s1": 8}
        )
    assert (found.own, found.shared) == (3 * 8 * 4 + 3 * 4 * 4, 0)


def test_of_a_bucket_results_are_shared_and_buffers_are_counted_apart() -> None:
    traced = symshape.trace(lambda x, y: (x * 2 + y).exp(), torch.ones(200), torch.ones(200))
    found = weight_of(traced.program.graph, {"s0": 200, "s1": 200}, buffers=1)
    assert found.own == 800  # the other input
    assert found.buffers == 1024  # whole blocks of 512
    assert found.shared == 3 * 800


def test_a_reshape_that_copies_is_counted() -> None:
    """A transposed matrix has no view of one dimension; one that is dense has."""
    traced = symshape.trace(lambda x: x.exp().t().reshape(-1).sum(), torch.ones(10, 20))
    assert weight_of(traced.program.graph, {"s0": 10, "s1": 20}).shared == 2 * 800
    traced = symshape.trace(lambda x: x.exp().reshape(-1).sum(), torch.ones(10, 20))
    assert weight_of(traced.program.graph, {"s0": 10, "s1": 20}).shared == 800


def test_a_reshape_inside_of_a_bucket_is_counted() -> None:
    """A padded program reshapes a permuted tensor, which no view can do."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.transpose(0, 1) @ x.transpose(0, 1).mT).transpose(0, 1).flatten(1)

    with torch.no_grad():
        traced = symshape.trace(program, torch.ones(5, 3, 16), dynamic={"x": {0: "n"}})
    made = plan(traced.program, {"n": 32}, planned=[{"n": 32}])
    assert made.padded is not None
    graph = captured_graph(made.padded, ()).graph
    reshaped = [node for node in graph.nodes if node.op is torch.ops.aten.reshape.default]
    assert reshaped
    inputs = [
        torch.zeros(tuple(map(int, each.value.spec.sizes)), dtype=each.value.spec.dtype)
        for each in graph.inputs
    ]
    with LiveBytes([*inputs, *(each.tensor for each in graph.lifted)]) as seen:
        before = seen.live
        results = interpreter(graph)(inputs)
    assert weight_of(graph, {"n": 32}, buffers=1).shared == seen.peak - before
    assert results
