"""Maximum pooling against eager."""

from __future__ import annotations

import random

import torch

from tests.meta_fns.eager import check_call, odd_tensor


def test_max_pool_of_one_dimension() -> None:
    rng = random.Random(1)
    accepted = 0
    for _ in range(1500):
        sizes = [
            rng.randint(0, 3) if rng.random() < 0.1 else rng.randint(1, 4)
            for _ in range(rng.choice((0, 1, 2, 2)))
        ]
        tensor = odd_tensor(
            rng,
            [*sizes, rng.randint(0, 8)],
            rng.choice((torch.float32, torch.float64, torch.int64)),
        )
        args = (
            [rng.randint(1, 4)],
            rng.choice(([], [1], [2], [3])),
            [rng.randint(0, 1)],
            [rng.randint(1, 2)],
        )
        accepted += check_call("aten.max_pool1d.default", tensor, *args, rng.random() < 0.5)
    assert accepted > 300


def test_max_pool() -> None:
    rng = random.Random(0)
    accepted = 0
    for _ in range(1500):
        sizes = [
            rng.randint(0, 3) if rng.random() < 0.1 else rng.randint(1, 4)
            for _ in range(rng.choice((1, 2, 2)))
        ]
        sizes += [rng.randint(1, 8), rng.randint(1, 8)] if rng.random() < 0.95 else [0, 3]
        tensor = odd_tensor(
            rng, sizes, rng.choice((torch.float32, torch.float32, torch.int64, torch.bool))
        )
        kernel = [rng.randint(1, 4) for _ in range(2)]
        stride = rng.choice(([], [rng.randint(1, 3), rng.randint(1, 3)], [2]))
        padding = [rng.randint(0, 1) for _ in range(2)]
        dilation = [rng.randint(1, 2) for _ in range(2)]
        args = (kernel, stride, padding, dilation, rng.random() < 0.5)
        accepted += check_call("aten.max_pool2d_with_indices.default", tensor, *args)
    assert accepted > 500
