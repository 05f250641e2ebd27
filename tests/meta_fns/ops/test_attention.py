"""Fused attention against eager."""

from __future__ import annotations

import random

import pytest
import torch

import meta_fns
from tests.meta_fns.eager import check_call, odd_tensor


def test_attention() -> None:
    rng = random.Random(0)
    for _ in range(300):
        # No empty tensors: eager's kernel divides by their sizes and takes the process with it.
        b, h, s, t, d = (rng.randint(1, 4) for _ in range(5))
        dtype = rng.choice((torch.float32, torch.float64, torch.bfloat16))
        query = odd_tensor(rng, [b, h, s, d], dtype)
        key, value = (odd_tensor(rng, [b, h, t, d], dtype) for _ in range(2))
        mask = rng.choice((None, [s, t], [1, t], [b, h, s, t], [b, 1, 1, t], [1, h, s, t]))
        if any(tensor.stride(-1) != 1 for tensor in (query, key, value)):
            continue
        options = {"attn_mask": None if mask is None else odd_tensor(rng, mask, dtype)}
        check_call(
            "aten._scaled_dot_product_flash_attention_for_cpu.default",
            query,
            key,
            value,
            0.0,
            rng.random() < 0.5,
            **options,
        )


def test_attention_refuses() -> None:
    def spec(*sizes: int) -> meta_fns.TensorSpec:
        return meta_fns.TensorSpec.contiguous(sizes)

    name = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    good = spec(2, 4, 3, 8)
    for query, key, value in (
        (spec(4, 3, 8), good, good),
        (good, spec(2, 4, 3, 7), good),
        (good, spec(3, 4, 3, 8), good),
    ):
        with pytest.raises(meta_fns.ShapeError, match=name):
            meta_fns.infer(name, (query, key, value))
