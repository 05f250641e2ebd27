"""Tensors that are contiguous and channels-last at once, images of one pixel or one channel, with a
symbolic batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.runtime.padding.results import amount

OPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "relu": lambda a, b: a.relu(),
    "gelu": lambda a, b: F.gelu(a),
    "softmax": lambda a, b: a.softmax(1),
    "clamp": lambda a, b: a.clamp(0),
    "add of a number": lambda a, b: a + 1,
    "comparison with a number": lambda a, b: a > 0,
    "product": lambda a, b: a * a,
    "product with one that is contiguous": lambda a, b: a * b,
    "product of one that is contiguous": lambda a, b: b * a,
    "where": lambda a, b: torch.where(a > 0, a, b),
    "cast": lambda a, b: a.double(),
    "clone": lambda a, b: a.clone(),
    "zeros like it": lambda a, b: torch.zeros_like(a),
    "broadcast": lambda a, b: a + torch.ones(a.size(1), 1, 1),
    "upsampling": lambda a, b: F.interpolate(a.relu(), size=(4, 4), mode="bilinear"),
    "convolution": lambda a, b: F.conv2d(a.relu(), torch.ones(6, a.size(1), 1, 1)),
    "cat": lambda a, b: torch.cat([a.relu(), b.relu()], 1),
}


@pytest.mark.parametrize("shape", [(4, 6, 1, 1), (4, 1, 3, 3)], ids=["one pixel", "one channel"])
@pytest.mark.parametrize(
    "op",
    [
        pytest.param(
            each, marks=pytest.mark.xfail(strict=True, reason="sizes of 1 are ordered otherwise")
        )
        if each == "broadcast"
        else each
        for each in OPS
    ],
)
def test_strides_are_eagers(op: str, shape: tuple[int, ...]) -> None:
    strides = torch.empty(shape, memory_format=torch.channels_last).stride()
    a, b = torch.randn(shape).as_strided(shape, strides), torch.randn(shape)

    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        return OPS[op](a.clone(), b)

    with torch.no_grad():
        traced = symshape.trace(fn, a, b, dynamic={"a": {0: "batch"}, "b": {0: "batch"}})
        theirs = fn(a, b)
    (value,) = traced.graph.outputs
    found = tuple(
        amount(each, dict.fromkeys(traced.program.positions, shape[0]))
        for each in value.spec.strides
    )
    assert found == theirs.stride()
