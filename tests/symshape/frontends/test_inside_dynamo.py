"""A compiled function inside what Dynamo compiles, or torch.export exports, is a part of that
graph.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import symshape
from symshape.frontends.dynamo import symshape_backend

BACKENDS = {"eager": "eager", "aot_eager": "aot_eager", "symshape": symshape_backend}


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def _wave(x: Tensor, *, by: float = 2.0) -> Tensor:
    return x * by + x.shape[0]


class Outer(nn.Module):
    """Calls a decorated method, a method compiled for an instance, and a function compiled
    outside.
    """

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.inner = symshape.compile(self._inner)
        self.wave = symshape.compile(_wave)

    def _inner(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()

    @symshape.compile
    def decorated(self, x: Tensor) -> Tensor:
        return self.linear(x).sin()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.decorated(x) * self.wave(x, by=3.0)

    def plainly(self, x: Tensor) -> Tensor:
        return self._inner(x) + self.linear(x).sin() * _wave(x, by=3.0)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_function(name: str) -> None:
    inner: Any = symshape.compile(_wave)
    outer = torch.compile(
        lambda x: inner(x).sin(), backend=BACKENDS[name], fullgraph=True, dynamic=True
    )
    for n in (3, 4, 6):
        torch.testing.assert_close(outer(torch.ones(n)), _wave(torch.ones(n)).sin())
    assert inner.stats().calls == 0


@pytest.mark.parametrize("name", BACKENDS)
def test_methods_and_gradients(name: str) -> None:
    module = Outer()
    outer: Any = torch.compile(module, backend=BACKENDS[name], fullgraph=True, dynamic=True)
    for n in (3, 4, 6):
        x = torch.randn(n, 3)
        outer(x).sum().backward()
        found = [each.grad for each in module.parameters()]
        module.zero_grad()
        module.plainly(x).sum().backward()
        torch.testing.assert_close(found, [each.grad for each in module.parameters()])
        module.zero_grad()


@pytest.mark.parametrize("strict", [True, False])
def test_exported(strict: bool) -> None:
    module, x = Outer(), torch.randn(4, 3)
    sizes = ((torch.export.Dim("batch", min=2, max=64), torch.export.Dim.STATIC),)
    exported: Any = torch.export.export(module, (x,), dynamic_shapes=sizes, strict=strict)
    y = torch.randn(9, 3)
    torch.testing.assert_close(exported.module()(y), module.plainly(y))


def test_where_the_graph_breaks_the_program_serves() -> None:
    inner: Any = symshape.compile(_wave)

    def outer(x: Tensor) -> Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return torch._dynamo.disable(inner)(y)

    compiled = torch.compile(outer, backend="eager")
    for n in (3, 4, 6):
        torch.testing.assert_close(compiled(torch.ones(n)), _wave(torch.full((n,), 2.0)))
    assert inner.stats().traces == 2
