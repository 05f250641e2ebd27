"""Makers of tensors that take plain integers in C++, and keep sizes symbolic here; tensors made of
sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.symshape.eager import agree, symbolic_sizes

R = torch.randn
CASES: list[Callable[[Any], Any]] = [
    lambda x: torch.linspace(0, 1, x.size(0)),
    lambda x: torch.linspace(0, x.size(1), steps=x.size(0), dtype=torch.float64),
    lambda x: torch.logspace(0, 1, x.size(0), 2),
    lambda x: torch.fft.fftfreq(x.size(0), 0.5),
    lambda x: torch.fft.rfftfreq(x.size(0), dtype=torch.float64),
    lambda x: torch.fft.fftfreq(n=2 * x.size(0), d=3),
    lambda x: torch.tril_indices(x.size(0), x.size(1)),
    lambda x: torch.triu_indices(x.size(0), x.size(0), 1),
    lambda x: torch.triu_indices(x.size(1), col=x.size(0), offset=-2, dtype=torch.int32),
    lambda x: torch.tril_indices(x.size(0), 4, x.size(1) - 3),
    lambda x: x[tuple(torch.tril_indices(2, x.size(1), -1))] * 2,
    lambda x: torch.tensor(x.shape),
    lambda x: torch.tensor([[x.size(0), 1], [2, x.size(1)]], dtype=torch.float32) / 2,
    lambda x: torch.as_tensor([x.size(0), 7]) + x.size(1),
    lambda x: torch.asarray((x.size(0),)),
    lambda x: torch.tensor([x.size(0), 0.5, x.size(1) / 3]) + torch.as_tensor(1e300),
]


@pytest.mark.parametrize("fn", CASES)
def test_sizes_stay_symbolic(fn: Callable[[Any], Any]) -> None:
    traced, seen = agree(fn, (R(3, 5),), (R(4, 7),), (R(9, 2),), dynamic=True)
    assert seen == ["equal"] * 3
    assert symbolic_sizes(traced, "x") == ("s0", "s1")


def test_numbers_that_are_kept_plain() -> None:
    for fn in (
        lambda x: torch.tensor([x.size(0), True]),
        lambda x: torch.tensor(x.size(0), dtype=torch.uint8),
        lambda x: x.new_tensor([x.size(0)]),
    ):
        _, seen = agree(fn, (R(3, 5),), (R(3, 7),), (R(4, 5),))
        assert seen == ["equal", "equal", "refused"]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_sequences_are_padded_to_the_longest(first: bool, side: str) -> None:
    def fn(*each: torch.Tensor) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(list(each), first, 0.5, side)

    calls = [tuple(R(n, 4) for n in lengths) for lengths in ((3, 5, 4), (7, 2, 3), (1, 9, 6))]
    traced, seen = agree(fn, *calls, dynamic=True)
    assert seen == ["equal"] * 3
    assert not [guard for guard in traced.guards if "s0" in str(guard.term)]
