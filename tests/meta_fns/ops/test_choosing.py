"""Questions of each element and choices by a mask, against eager."""

from __future__ import annotations

import random

import pytest
import torch

from tests.meta_fns.eager import ALL_DTYPES, broadcastable, check_call, odd_sizes, odd_tensor


@pytest.mark.parametrize("name", ["aten.isfinite.default", "aten.isinf.default"])
def test_finite(name: str) -> None:
    rng = random.Random(name)
    for _ in range(200):
        check_call(name, odd_tensor(rng, odd_sizes(rng), rng.choice(ALL_DTYPES)))


def test_where_layout() -> None:
    rng = random.Random(0)
    for _ in range(600):
        sizes = odd_sizes(rng)
        tensors = [
            odd_tensor(rng, broadcastable(rng, sizes), t)
            for t in (torch.bool, torch.float32, torch.float32)
        ]
        if rng.random() < 0.3:
            tensors[1] = tensors[1].to(rng.choice(ALL_DTYPES))
        check_call("aten.where.self", *tensors)


def test_masked_fill() -> None:
    rng = random.Random(0)
    for _ in range(300):
        sizes = odd_sizes(rng)
        tensor = odd_tensor(rng, broadcastable(rng, sizes), rng.choice(ALL_DTYPES))
        mask = odd_tensor(
            rng, broadcastable(rng, sizes), rng.choice((torch.bool, torch.bool, torch.uint8))
        )
        check_call("aten.masked_fill.Scalar", tensor, mask, 0)
        check_call("aten.masked_fill.Tensor", tensor, mask, torch.ones(()))
        check_call("aten.masked_fill_.Scalar", tensor, mask, 0)
