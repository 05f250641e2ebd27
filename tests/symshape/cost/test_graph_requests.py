"""The requests of a graph's run, against those of the same graph run on real tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.cost.allocator import Allocator, OutOfMemory
from symshape.cost.graph_requests import Requests, requests_of
from symshape.cost.live_bytes import LiveBytes
from symshape.graph.interpreter import interpreter
from symshape.runtime.padding.planning import plan
from symshape.runtime.runners.padded.fusion import captured_graph
from tests.models import MODELS, Model
from tests.symshape.cost.programs import UNet


def _attention(x: torch.Tensor) -> torch.Tensor:
    heads = x.unflatten(-1, (4, -1)).transpose(1, 2)
    mixed = torch.softmax(heads @ heads.transpose(-1, -2), -1) @ heads
    return mixed.transpose(1, 2).flatten(2) + x


def _in_place(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.cumsum(1)
    y.mul_(2)
    z = y[:, :1]
    return z + 1, y.relu_()


def _shared(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.exp(x)
    return y.transpose(0, 1), y.sum(0)


PROGRAMS: dict[str, tuple[Callable[..., Any], torch.Tensor, dict[int, str]]] = {
    "mlp": (
        nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16)),
        torch.randn(3, 5, 16),
        {1: "n"},
    ),
    "attention": (_attention, torch.randn(2, 5, 16), {1: "n"}),
    "u-net": (UNet(), torch.randn(3, 3, 16, 16), {0: "n"}),
    "in place": (_in_place, torch.randn(4, 6), {0: "n"}),
    "views as results": (_shared, torch.randn(4, 6), {0: "n"}),
    "layer norm": (nn.LayerNorm(16), torch.randn(3, 5, 16), {1: "n"}),
}


def _captured(name: str, size: int) -> tuple[Any, Requests]:
    """The graph that a bucket of this size captures, and its requests."""
    fn, x, dims = PROGRAMS[name]
    argument = "x" if not isinstance(fn, nn.Sequential | nn.LayerNorm) else "input"
    with torch.no_grad():
        traced = symshape.trace(fn, x, dynamic={argument: dims})
    made = plan(traced.program, {"n": size}, planned=[{"n": size}])
    assert made.padded is not None
    graph = captured_graph(made.padded, ()).graph
    return graph, requests_of(graph, {**made.exact, **made.caps})


def _as_run(graph: Any, requests: Requests) -> None:
    """Assert that the requests are those of a run of the graph, in order, and so is the most that
    lives.
    """
    inputs = [
        torch.zeros(tuple(map(int, each.value.spec.sizes)), dtype=each.value.spec.dtype)
        for each in graph.inputs
    ]
    run = interpreter(graph)
    with torch.no_grad(), LiveBytes([*inputs, *(each.tensor for each in graph.lifted)]) as seen:
        before = seen.live
        results = run(inputs)
    sizes = dict(each for born, _ in requests.steps for each in born)
    assert Counter(sizes.values()) == Counter(size for _, size in seen.changes if size)
    assert list(sizes.values()) == [size for _, size in seen.changes if size], "in the same order"
    assert sum(sizes[number] for number in requests.kept) == seen.live - before
    assert len(requests.run(Allocator())) == len(requests.kept)
    most = now = 0
    for born, gone in requests.steps:
        now += sum(size for _, size in born)
        most = max(most, now)
        now -= sum(sizes[number] for number in gone)
    assert most == seen.peak - before
    assert results


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("size", [2, 9, 32])
def test_the_requests_are_those_of_a_run(name: str, size: int) -> None:
    _as_run(*_captured(name, size))


@pytest.mark.parametrize(
    "model", [each for each in MODELS if each.name != "resnet"], ids=lambda each: each.name
)
def test_the_requests_of_models_are_those_of_a_run(model: Model) -> None:
    call = model.call(3, 12)
    with torch.no_grad():
        traced = symshape.trace(model.build(), dynamic={name: {0: "n"} for name in call}, **call)
    made = plan(traced.program, {"n": 6}, planned=[{"n": 6}])
    assert made.padded is not None
    graph = captured_graph(made.padded, ()).graph
    _as_run(graph, requests_of(graph, {**made.exact, **made.caps}))


def test_results_stay_and_the_rest_is_freed() -> None:
    _, requests = _captured("attention", 32)
    allocator = Allocator()
    (result,) = requests.run(allocator)
    assert allocator.allocated == result.size == 2 * 32 * 16 * 4


def test_a_limit_ends_a_run() -> None:
    _, requests = _captured("attention", 32)
    with pytest.raises(OutOfMemory):
        requests.run(Allocator(limit=2**20))
