"""Arithmetic of more than a row in the table, against eager."""

from __future__ import annotations

import random

import torch

from tests.meta_fns.eager import (
    ALL_DTYPES,
    broadcastable,
    check_call,
    odd_sizes,
    odd_tensor,
    values,
)


def test_clamp() -> None:
    rng = random.Random(0)
    for _ in range(300):
        tensor = odd_tensor(rng, odd_sizes(rng), rng.choice(ALL_DTYPES))
        low, high = rng.choice((None, 0, 0.5)), rng.choice((None, 1, 2.0))
        check_call("aten.clamp.default", tensor, low, high)
        bound = odd_tensor(rng, broadcastable(rng, list(tensor.shape)), rng.choice(ALL_DTYPES))
        check_call(
            "aten.clamp.Tensor", tensor, *rng.choice(((bound,), (None, bound), (bound, bound)))
        )


def test_division_modes() -> None:
    for mode in (None, "floor", "trunc", "odd"):
        for dtype in ALL_DTYPES:
            check_call(
                "aten.div.Tensor_mode",
                values([3], dtype),
                values([3], torch.int64),
                rounding_mode=mode,
            )
            check_call(
                "aten.div.Tensor_mode", values([3], dtype), values([3], dtype), rounding_mode=mode
            )


def test_square() -> None:
    rng = random.Random(0)
    for _ in range(100):
        check_call("aten.square.default", odd_tensor(rng, odd_sizes(rng), rng.choice(ALL_DTYPES)))
