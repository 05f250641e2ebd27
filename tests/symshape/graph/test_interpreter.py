"""Graphs run node by node: the results of the function that is made of them, and nothing kept
longer than needed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.graph.codegen import compile_graph
from symshape.graph.interpreter import interpreter

LAYER = torch.nn.Linear(4, 6)


def _written(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[1:].add_(1)
    return y.relu_()


def _split(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    first, second = x.split(2, 1)
    return first @ second.t(), torch.stack([first, second]).amax(0), x.topk(2).values


@pytest.mark.parametrize("fn", [LAYER, _written, _split, lambda x: (x, x.sum(), [x + 1, 3])])
def test_results_are_those_of_the_compiled_function(fn: Callable[..., Any]) -> None:
    x = torch.randn(3, 4)
    with torch.no_grad():
        graph = symshape.trace(fn, x, dynamic=False).graph
        for _ in range(2):
            one, other = interpreter(graph)([x.clone()]), compile_graph(graph, {})([x.clone()], ())
            assert len(one) == len(other)
            for mine, theirs in zip(one, other, strict=True):
                assert (
                    torch.equal(mine, theirs)
                    if isinstance(theirs, torch.Tensor)
                    else mine == theirs
                )


def test_tensors_go_after_their_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 4)
    graph = symshape.trace(lambda x: ((x + 1) * 2).exp().sum(), x, dynamic=False).graph
    made: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []
    run = interpreter(graph)

    class Noting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            alive.append(sum(each() is not None for each in made))
            result = func(*args, **(kwargs or {}))
            made.append(weakref.ref(result))
            return result

    with Noting():
        run([x])
    assert len(alive) == 4
    assert max(alive) == 1


def test_symbolic_sizes_are_refused() -> None:
    graph = symshape.trace(
        lambda x: x.new_zeros(x.shape[0] * 2), torch.randn(3, 4), dynamic=True
    ).graph
    with pytest.raises(ValueError, match="node by node"):
        interpreter(graph)
