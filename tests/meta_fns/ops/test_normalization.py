"""Softmax and norms against eager."""

from __future__ import annotations

import random

import pytest
import torch

from tests.meta_fns.eager import FLOATS, check_call, odd_sizes, odd_tensor
from tests.meta_fns.ops.test_reductions import cases, some_dim


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_softmax(name: str) -> None:
    for rng, tensor in cases(name, 400):
        check_call(f"aten.{name}.default", tensor, some_dim(rng, tensor), rng.random() < 0.1)


def test_layer_norm() -> None:
    rng = random.Random(0)
    for _ in range(500):
        sizes = odd_sizes(rng, (0, 1, 2, 3, 4))
        normalized = sizes[rng.randint(0, len(sizes)) :] if rng.random() < 0.95 else odd_sizes(rng)
        dtype = rng.choice(FLOATS)
        parameter = rng.choice((dtype, dtype, torch.float32))
        weight, bias = (rng.choice((None, odd_tensor(rng, normalized, parameter))) for _ in range(2))
        check_call("aten.native_layer_norm.default", odd_tensor(rng, sizes, dtype), normalized, weight, bias, 1e-5)


def test_batch_norm() -> None:
    rng = random.Random(0)
    for _ in range(500):
        sizes = odd_sizes(rng, (2, 3, 4, 4, 5))
        channels = sizes[1]
        dtype = rng.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16))
        parameter = torch.float32 if dtype is torch.bfloat16 and rng.random() < 0.5 else dtype

        def vector(channels: int = channels, parameter: torch.dtype = parameter) -> torch.Tensor:
            # Always of the right size: eager's kernel does not check, the composite op above it does.
            return torch.ones(channels, dtype=parameter)

        weight, bias = (rng.choice((None, vector())) for _ in range(2))
        mean, var = rng.choice(((None, None), (vector(), vector())))
        tensor = odd_tensor(rng, sizes, dtype)
        training = mean is None or rng.random() < 0.5
        check_call("aten.native_batch_norm.default", tensor, weight, bias, mean, var, training, 0.1, 1e-5)
