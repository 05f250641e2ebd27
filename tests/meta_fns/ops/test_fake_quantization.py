"""Fake quantisation against eager, in odd layouts."""

from __future__ import annotations

import random

import pytest
import torch

from meta_fns import MetaError, infer
from tests.meta_fns.eager import check_call, odd_sizes, odd_tensor

NAME = "aten.fake_quantize_per_{}_affine_cachemask.default"


@pytest.mark.parametrize("seed", range(20))
def test_layouts(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((1, 2)), 3, *odd_sizes(rng, (0, 1, 2))]
    x = odd_tensor(rng, sizes)
    scale, zero = torch.full((3,), 0.1), torch.zeros(3, dtype=torch.int32)
    assert check_call(NAME.format("tensor"), x, 0.1, 0, 0, 255)
    assert check_call(NAME.format("channel"), x, scale, zero, 1, 0, 255)
    args = (torch.tensor(0.1), torch.tensor(0, dtype=torch.int32), torch.tensor(1))
    assert check_call(
        "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default", x, *args, 0, 255
    )


def test_what_eager_refuses() -> None:
    x, scale, zero = torch.randn(2, 3), torch.full((3,), 0.1), torch.zeros(3, dtype=torch.int32)
    assert not check_call(NAME.format("tensor"), x, 0.1, 300, 0, 255)
    assert not check_call(NAME.format("channel"), x, scale, zero, 0, 0, 255)
    assert not check_call(NAME.format("channel"), x, scale, zero[:2], 1, 0, 255)
    with pytest.raises(MetaError):
        infer(NAME.format("tensor"), (torch.ones(2, dtype=torch.int64), 0.1, 0, 0, 255))
