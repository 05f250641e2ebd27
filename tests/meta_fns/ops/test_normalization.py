"""Softmax and norms against eager."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import symshape
from symshape.runtime.padding.results import amount
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
        weight, bias = (
            rng.choice((None, odd_tensor(rng, normalized, parameter))) for _ in range(2)
        )
        check_call(
            "aten.native_layer_norm.default",
            odd_tensor(rng, sizes, dtype),
            normalized,
            weight,
            bias,
            1e-5,
        )


def test_batch_norm() -> None:
    rng = random.Random(0)
    for _ in range(500):
        sizes = odd_sizes(rng, (2, 3, 4, 4, 5))
        channels = sizes[1]
        dtype = rng.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16))
        parameter = torch.float32 if dtype is torch.bfloat16 and rng.random() < 0.5 else dtype

        def vector(channels: int = channels, parameter: torch.dtype = parameter) -> torch.Tensor:
            # Always of the right size: eager's kernel does not check, the composite op above it
            # does.
            return torch.ones(channels, dtype=parameter)

        weight, bias = (rng.choice((None, vector())) for _ in range(2))
        mean, var = rng.choice(((None, None), (vector(), vector())))
        tensor = odd_tensor(rng, sizes, dtype)
        training = mean is None or rng.random() < 0.5
        check_call(
            "aten.native_batch_norm.default", tensor, weight, bias, mean, var, training, 0.1, 1e-5
        )


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(4, 6, 1, 1), (4, 1, 3, 3), (4, 6, 3, 5), (2, 6, 1, 3)])
def test_batch_norm_of_what_is_channels_last_and_contiguous(
    shape: tuple[int, ...], dynamic: bool
) -> None:
    """One pixel, or one channel: torch's result is contiguous, and so are those of ops behind that
    go by it.
    """
    norm = torch.nn.BatchNorm2d(shape[1]).eval()
    like = torch.empty(shape[0], shape[1], *shape[2:], memory_format=torch.channels_last)
    x = torch.randn(shape).as_strided(
        shape, like.contiguous(memory_format=torch.channels_last).stride()
    )

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = norm(x + 0)
        return y, torch.nn.functional.interpolate(y, size=(4, 4), mode="bilinear")

    dims: Any = {"x": {0: "batch"}} if dynamic else False
    with torch.no_grad():
        traced = symshape.trace(fn, x, dynamic=dims)
        for value, theirs in zip(traced.graph.outputs, fn(x), strict=True):
            values = dict.fromkeys(traced.program.positions, shape[0])
            strides = tuple(amount(each, values) for each in value.spec.strides)
            assert strides == theirs.stride()
