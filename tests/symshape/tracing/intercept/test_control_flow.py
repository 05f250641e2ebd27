"""The operators that take functions are exchanged where torch's own code calls them, however a program came by it."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch

import symshape
from symshape.tracing.intercept.control_flow import CONTROL_FLOW

_PARTIAL = functools.partial(torch.cond)


def _imported(x: torch.Tensor) -> torch.Tensor:
    from torch import cond

    return cond(x.sum() > 0, lambda: x * 2, lambda: x * 3)  # type: ignore[no-any-return]


WAYS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    _imported,
    lambda x: _PARTIAL(x.sum() > 0, lambda: x * 2, lambda: x * 3),
    lambda x: getattr(torch, "cond")(x.sum() > 0, lambda: x * 2, lambda: x * 3),  # noqa: B009
    lambda x: next(map(torch.cond, [x.sum() > 0], [lambda: x * 2], [lambda: x * 3])),
)


@pytest.mark.parametrize("fn", WAYS)
def test_ways_to_call_it(fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    fast = symshape.compile(fn, fullgraph=True, dynamic=True)
    for x in (torch.rand(3), -torch.rand(3), torch.rand(5)):
        assert torch.equal(fast(x), x * (2 if x.sum() > 0 else 3))
    assert fast.stats().traces == 1


def test_all_are_there() -> None:
    assert len(CONTROL_FLOW) == 3


def test_outside_of_a_trace_they_are_torchs() -> None:
    for call in CONTROL_FLOW.values():
        with pytest.raises(TypeError):
            call()
