"""Which sizes of places outside the arguments a trace expects to change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import symshape


def test_the_state_of_an_optimizer_keeps_its_sizes() -> None:
    torch.manual_seed(0)
    model, twin = nn.Linear(6, 3), nn.Linear(6, 3)
    twin.load_state_dict(model.state_dict())
    optimizers = [torch.optim.AdamW(each.parameters(), lr=0.1) for each in (model, twin)]

    def step_of(module: nn.Module, optimizer: torch.optim.Optimizer):  # type: ignore[no-untyped-def]
        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = module(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    compiled, eager = symshape.compile(step_of(model, optimizers[0])), step_of(twin, optimizers[1])
    for rows in (4, 7, 5, 9):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(compiled(x), eager(x))
    dynamic = compiled.entries[-1].program
    assert {source.text() for symbol in dynamic.symbols.values() for source in symbol.sources} == {
        "x.size(0)"
    }
    assert compiled.stats().traces == 2


class Grows(nn.Module):
    """Keeps rows that begin with the shape of its parameter, and grow."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 3))
        self.rows = torch.zeros(0, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.rows = torch.cat([self.rows, x + self.weight.sum()])
        return self.rows.sum(0)


@pytest.mark.parametrize("dynamic", [None, {"x": {0: "rows"}}, True])
def test_what_has_a_parameters_shape_and_grows_is_dynamic_from_its_next_trace_on(
    dynamic: Any,
) -> None:
    module, twin = Grows(), Grows()
    compiled = symshape.compile(module, dynamic=dynamic)
    x = torch.randn(2, 3)
    with torch.no_grad():
        for _ in range(7):
            torch.testing.assert_close(compiled(x), twin(x))
            assert module.rows.shape == twin.rows.shape
    assert compiled.stats().traces <= 4
