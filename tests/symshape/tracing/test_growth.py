"""A trace of twice the layers costs twice as much: counted in calls of Python functions, which no
machine disturbs.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch
from torch import nn

import symshape
from tests.counting import calls, undisturbed


class _Block(nn.Module):
    """Attention whose heads are put together by a ``reshape`` that copies, and a feed-forward
    part.
    """

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out, self.wide, self.back = (
            nn.Linear(8, 24),
            nn.Linear(8, 8),
            nn.Linear(8, 16),
            nn.Linear(16, 8),
        )
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.into(self.norm(x)).view(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(parts[0] @ parts[1].transpose(-2, -1), dim=-1)
        x = x + self.out((weights @ parts[2]).transpose(1, 2).reshape(batch, length, 8))
        return x + self.back(torch.relu(self.wide(x)))


def _calls(layers: int) -> tuple[int, int]:
    """The Python functions called in a trace, generators' turns included, and the ops traced."""
    model = nn.Sequential(*[_Block() for _ in range(layers)])
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        symshape.trace(model, x)  # what is made once for a class or an op is made now
        outer = sys.getprofile()
        with undisturbed(cold=False):
            sys.setprofile(count)
            try:
                traced = symshape.trace(model, x)
            finally:
                sys.setprofile(outer)
    return calls, len(traced.graph.nodes)


def test_the_calls_of_a_trace_grow_as_its_ops_do() -> None:
    few, some, many = (_calls(layers) for layers in (4, 12, 32))
    assert many[1] > 1200
    # of each op that is added
    first, then = ((b[0] - a[0]) / (b[1] - a[1]) for a, b in ((few, some), (some, many)))
    assert 1 / 1.1 <= then / first <= 1.1, (first, then)
    assert few[0] / few[1] > 1.1 * then  # layers like those before are repeated


def _counters(number: int) -> int:
    """The functions called by a trace that reads and branches on so many counters, as optimisers'
    steps do.
    """
    counters = [torch.tensor(float(i)) for i in range(number)]

    def fn(x: torch.Tensor) -> torch.Tensor:
        for each in counters:
            each.add_(1)
            x = x + 1 if each.item() > number / 2 else x - torch.tensor(x.size(0)).item()
        return x

    compiled = symshape.compile(fn, fullgraph=True)
    _, found = calls(lambda: compiled(torch.zeros(3)))
    return found


def test_what_a_number_holds_is_found_without_looking_over_all_steps() -> None:
    _counters(2)
    few, many = _counters(15), _counters(60)
    assert many < 3.95 * few
