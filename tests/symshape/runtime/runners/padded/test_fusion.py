"""Kernels merged before capture: the same values, and only where nobody else reads what is
merged.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import symshape
from symshape.graph.codegen import compile_graph
from symshape.runtime.runners.padded.fusion import fuse

aten = torch.ops.aten


def _fused_ops(fn: Callable[..., object], x: torch.Tensor) -> list[object]:
    with torch.no_grad():
        traced = symshape.trace(fn, x)
        graph = fuse(traced.graph)
        values = tuple(x.shape)
        expected = fn(x)
        result = compile_graph(graph, traced.program.positions)([x], values)
        for ours, eager in zip(
            result, expected if isinstance(expected, tuple) else (expected,), strict=True
        ):
            torch.testing.assert_close(ours, eager)
    return [node.op for node in graph.nodes]


def test_relu_joins_the_product_before_it() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    ops = _fused_ops(model, torch.randn(3, 8))
    assert aten._addmm_activation.default in ops
    assert aten.relu.default not in ops
    assert ops.count(aten.addmm.default) == 1


@pytest.mark.parametrize("second", [lambda y: y + 1, lambda y: y.sum()])
def test_a_product_that_others_read_stays(second: Callable[[torch.Tensor], torch.Tensor]) -> None:
    layer = torch.nn.Linear(8, 16)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = layer(x)
        return y.relu(), second(y)

    assert aten._addmm_activation.default not in _fused_ops(f, torch.randn(3, 8))


def test_a_product_that_is_returned_stays() -> None:
    layer = torch.nn.Linear(8, 16)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = layer(x)
        return y, y.relu()

    assert aten._addmm_activation.default not in _fused_ops(f, torch.randn(3, 8))
