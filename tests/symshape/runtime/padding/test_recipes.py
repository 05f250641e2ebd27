"""A node is planned like another one only if it is like it; see also the whole models, which are
planned both ways.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.runtime.padding import recipes
from symshape.runtime.padding.padded_graph import PaddedGraph


def padded(fn: Callable[..., Any], sizes: tuple[int, ...] = (7, 5, 9, 3, 12)) -> Any:
    """A compiled function that was called with these numbers of rows, each result eager's."""
    compiled = symshape.compile(fn, runner="padded", fullgraph=True)
    with torch.no_grad():
        for size in sizes:
            x = torch.randn(size, 4)
            assert torch.allclose(compiled(x), fn(x), atol=1e-5)
    return compiled


def test_layers_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    learn, asked = recipes.Recipes.learn, []
    weight = torch.randn(4, 4)
    for layers in (2, 8):

        def fn(x: torch.Tensor, layers: int = layers) -> torch.Tensor:
            for _ in range(layers):
                x = torch.softmax(x @ weight, 0).mean(0) + x
            return x

        learnt: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(
                recipes.Recipes,
                "learn",
                lambda *args, learnt=learnt: (learnt.append(1), learn(*args)),
            )
            compiled = padded(fn, (7, 5))
        [bucket] = compiled.entries[-1].runner.buckets
        assert len(bucket.made.padded.graph.nodes) >= 4 * layers
        asked.append(len(learnt))
    assert 0 < asked[0] == asked[1] <= 8


def fills(x: torch.Tensor) -> torch.Tensor:
    """The same op on tensors whose padding holds other things."""
    return torch.exp(x).sum(0) + torch.exp(torch.softmax(x, 0)).sum(0) + torch.exp(x * 0).sum(0)


def twice_and_apart(x: torch.Tensor) -> torch.Tensor:
    """The same tensor for both arguments, and two of the same kind."""
    return (x * x - x) * x.neg() + x.neg() * x.neg()


def constants(x: torch.Tensor) -> torch.Tensor:
    """Numbers that are equal and not the same: 1, 1.0 and True; zeros of either sign."""
    return (
        (x + 1) * (x + 1.0) + (x * 0.0).sum(0) + torch.atan2(x * 0.0, x * -0.0).clamp(-0.0).sum(0)
    )


def views(x: torch.Tensor) -> torch.Tensor:
    """The same op on tensors that lie in memory in other ways, and writes between."""
    y = x.clone()
    first = y.t() @ y
    y[1:] += 1
    return first + y.t() @ y + (y.t().contiguous() @ y)


def gathered(x: torch.Tensor) -> torch.Tensor:
    a, b = x.relu(), x.sigmoid()
    return torch.cat([a, b], 1) + torch.cat([a, a], 1) + torch.cat([b, a], 1) + F.pad(a, (2, 2))


@pytest.mark.parametrize("fn", [fills, twice_and_apart, constants, views, gathered])
def test_what_looks_alike_and_is_not(
    fn: Callable[..., Any], planned_both_ways: list[PaddedGraph]
) -> None:
    padded(fn)
    assert len(planned_both_ways) >= 2


def test_what_is_known_of_a_graph_goes_with_it() -> None:
    compiled = padded(lambda x: x * 2 + 1, (7, 5))
    graph = weakref.ref(compiled.entries[-1].program.graph)
    assert graph() in recipes._forms
    compiled.reset()
    del compiled
    gc.collect()
    assert graph() is None
