"""``torch.nn.utils.parametrize.cached`` keeps what it made in a global dictionary of torch's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import symshape


class Noisy(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * torch.rand(())


def noisy() -> nn.Module:
    module = nn.Linear(4, 3)
    parametrize.register_parametrization(module, "weight", Noisy())
    return module


def spectral() -> nn.Module:
    return parametrizations.spectral_norm(nn.Linear(4, 3))


@pytest.mark.parametrize("make", [noisy, spectral])
@pytest.mark.parametrize("runner", ["auto", "padded"])
def test_what_is_cached_is_made_once(make: Callable[[], nn.Module], runner: str) -> None:
    torch.manual_seed(0)
    theirs = make()
    ours = make()
    ours.load_state_dict(theirs.state_dict())
    mine = symshape.compile(lambda x: ours(x), runner=runner)  # type: ignore[arg-type]
    for size in (3, 5, 4, 7, 2):
        for each in (theirs, ours):
            with torch.no_grad():
                next(iter(each.parametrizations["weight"].parameters())).add_(0.1)  # type: ignore[index]
        found = []
        for fn in (theirs, mine):
            torch.manual_seed(size)
            with parametrize.cached():
                made = [fn(torch.ones(size, 4)) for _ in range(3)]
            found.append([*made, fn(torch.ones(size, 4))])
        torch.testing.assert_close(*found)
    torch.testing.assert_close(theirs.state_dict(), ours.state_dict())
