"""Whole layers of transformers: masks of other sizes are refused, as eager does, and nothing has no
weights.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import meta_fns
from meta_fns import TensorSpec
from meta_fns.errors import ShapeError

aten = torch.ops.aten


def _heads(x: torch.Tensor, mask: torch.Tensor | None, kind: int | None) -> tuple[Any, ...]:
    wide, narrow = torch.ones(24, 8), torch.ones(8, 8)
    return (x, x, x, 8, 2, wide, wide[:, 0], narrow, narrow[:, 0], mask, True, True, kind)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        *((0, sizes) for sizes in ((5, 5), (1, 5), (5, 6))),
        *((1, sizes) for sizes in ((3, 5), (1, 5), (3, 1), (3, 6))),
        *((2, sizes) for sizes in ((3, 2, 5, 5), (3, 1, 5, 5), (3, 2, 1, 5))),
    ],
)
def test_masks(kind: int, sizes: tuple[int, ...]) -> None:
    args = _heads(torch.ones(3, 5, 8), torch.zeros(sizes, dtype=torch.bool), kind)
    specs = [TensorSpec.of(each) if isinstance(each, torch.Tensor) else each for each in args]
    try:
        expected = aten._native_multi_head_attention.default(*args)
    except RuntimeError:
        with pytest.raises(ShapeError):
            meta_fns.infer("aten._native_multi_head_attention.default", specs)
    else:
        made = meta_fns.infer("aten._native_multi_head_attention.default", specs)
        assert [each.sizes for each in made] == [tuple(each.shape) for each in expected]


@pytest.mark.parametrize("sizes", [(0, 5, 8), (3, 0, 8)])
def test_nothing_has_no_weights(sizes: tuple[int, ...]) -> None:
    args = _heads(torch.ones(sizes), None, None)
    specs = [TensorSpec.of(each) if isinstance(each, torch.Tensor) else each for each in args]
    expected = aten._native_multi_head_attention.default(*args)
    made = meta_fns.infer("aten._native_multi_head_attention.default", specs)
    assert expected[1] is None
    assert made[1] is None
    assert made[0].sizes == tuple(expected[0].shape)
