"""Batch norm whose momentum is a count of batches: results, gradients and statistics are
eager's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape

_LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "rows": (lambda: nn.BatchNorm1d(4, momentum=None), (4,)),
    "rows, not affine": (lambda: nn.BatchNorm1d(4, momentum=None, affine=False), (4,)),
    "series": (lambda: nn.BatchNorm1d(4, momentum=None), (4, 3)),
    "images": (lambda: nn.BatchNorm2d(4, momentum=None, eps=0.1), (4, 3, 2)),
    "no statistics": (lambda: nn.BatchNorm1d(4, momentum=None, track_running_stats=False), (4,)),
    "two": (
        lambda: nn.Sequential(nn.BatchNorm1d(4, momentum=None), nn.BatchNorm1d(4, momentum=None)),
        (4,),
    ),
    "doubles": (lambda: nn.BatchNorm1d(4, momentum=None, dtype=torch.float64), (4,)),
}


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", _LAYERS)
def test_a_momentum_that_is_counted(name: str, inside: bool) -> None:
    make, rest = _LAYERS[name]
    torch.manual_seed(0)
    mine = make()
    theirs = copy.deepcopy(mine)
    head = nn.Parameter(
        torch.randn(4, *[1] * (len(rest) - 1), dtype=torch.float64 if name == "doubles" else None)
    )

    def loss(net: Any, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = (net(x * head) ** 3 * head).mean()
        if inside:
            found.backward()  # type: ignore[no-untyped-call]
        return found.detach() if inside else found

    compiled = symshape.compile(lambda x: loss(mine, x), fullgraph=True)
    for step, n in enumerate((3, 5, 2, 7, 4, 4, 9)):
        if step == 5:
            mine.eval(), theirs.eval()
        x = torch.randn(n, *rest, dtype=head.dtype)
        seen = []
        for run in (compiled, lambda x: loss(theirs, x)):
            head.grad = None
            found = run(x)
            if not inside:
                found.backward()
            seen.append([found.detach(), head.grad])
        torch.testing.assert_close(seen[0], seen[1], rtol=0, atol=0)
        torch.testing.assert_close(mine.state_dict(), theirs.state_dict(), rtol=0, atol=0)
    assert compiled.stats().traces <= 4


def test_too_few_values_are_eagers_error() -> None:
    compiled = symshape.compile(nn.BatchNorm1d(4, momentum=None))
    for n in (3, 5, 1):
        if n > 1:
            compiled(torch.randn(n, 4))
        else:
            with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
                compiled(torch.randn(n, 4))
    assert int(compiled.num_batches_tracked) == 3, "which eager counts before it refuses"
