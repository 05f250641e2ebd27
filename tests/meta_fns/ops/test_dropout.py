"""Dropout against eager."""

from __future__ import annotations

import random

import torch

from tests.meta_fns.eager import check_call, odd_sizes, odd_tensor


def test_native_dropout_backward() -> None:
    rng = random.Random(0)
    for _ in range(100):
        sizes = odd_sizes(rng)
        check_call(
            "aten.native_dropout_backward.default",
            odd_tensor(rng, sizes),
            odd_tensor(rng, sizes, torch.bool),
            2.0,
        )
