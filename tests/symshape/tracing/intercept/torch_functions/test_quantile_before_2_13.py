"""Quantiles of one fraction: eager's results, gradients and layouts, in one program for all
sizes.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape

R = torch.randn


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "nearest", "midpoint"])
@pytest.mark.parametrize(
    ("dim", "keepdim"), [(None, False), (None, True), (0, False), (1, True), (-1, False)]
)
@pytest.mark.parametrize("op", [torch.quantile, torch.nanquantile, torch.Tensor.quantile])
def test_as_in_eager(op: Any, dim: int | None, keepdim: bool, interpolation: str) -> None:
    compiled = symshape.compile(
        lambda x, q=0.3: op(x, q, dim, keepdim, interpolation=interpolation),
        dynamic=True,
        fullgraph=True,
    )
    for shape in ((3, 4, 5), (6, 2, 7), (5, 9, 3)):
        x = R(*shape)
        x[0, 0, 0] = x[2, :, 1] = float("nan")
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        found = [fn(leaf) for fn, leaf in zip((compiled, compiled.fn), leaves, strict=True)]
        assert torch.equal(found[0].nan_to_num(7.0), found[1].nan_to_num(7.0))
        assert found[0].stride() == found[1].stride()
        gradients = [
            torch.autograd.grad(each.nansum(), leaf)
            for each, leaf in zip(found, leaves, strict=True)
        ]
        torch.testing.assert_close(gradients[0], gradients[1], equal_nan=True)
    assert compiled.stats().traces == 1


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.quantile(1.5),
        lambda x: x.quantile(0.5, 3),
        lambda x: x[:0].quantile(0.5),
        lambda x: x.long().quantile(0.5),
        lambda x: x.quantile(0.5, interpolation="cubic"),
    ],
)
def test_what_eager_refuses(fn: Any) -> None:
    for each in (fn, symshape.compile(fn, dynamic=True)):
        with pytest.raises((RuntimeError, IndexError)):
            each(R(3, 4))
