"""Every op of the thread comes through the mode, and nothing but ops."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape
from symshape import UnsupportedError
from symshape.tracing.mode import is_tracing
from tests.symshape.tracing.looked_at import Found, found_by

R = torch.randn


def test_tracing_is_known_inside_only() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        raise Found(is_tracing())

    assert not is_tracing()
    assert found_by(lambda: symshape.trace(fn, R(3))) is True
    assert not is_tracing()
    inside = symshape.trace(lambda x: x + (1 if is_tracing() else 2), R(3))
    assert torch.equal(inside(torch.zeros(3)), torch.ones(3))
    assert not is_tracing()


def test_ops_that_take_functions_are_refused() -> None:
    def fn(x: torch.Tensor) -> Any:
        return torch.ops.higher_order.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    with pytest.raises(UnsupportedError):
        symshape.trace(fn, R(3))
    assert not is_tracing()


def test_factories_and_real_tensors_are_seen_too() -> None:
    weight = R(3)
    traced = symshape.trace(lambda x: torch.zeros(3) + weight + 0 * x, R(3))
    ops = [str(node.op) for node in traced.graph.nodes]
    assert ops == ["aten.zeros.default", "aten.add.Tensor", "aten.mul.Tensor", "aten.add.Tensor"]
