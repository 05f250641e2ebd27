"""New tensors against eager."""

from __future__ import annotations

import random

import pytest
import torch

import meta_fns
from tests.meta_fns.eager import ALL_DTYPES, check_call, odd_sizes, odd_tensor

FORMATS = (
    None,
    torch.contiguous_format,
    torch.preserve_format,
    torch.channels_last,
    torch.channels_last_3d,
)


@pytest.mark.parametrize("name", ["zeros", "ones"])
def test_sizes(name: str) -> None:
    rng = random.Random(name)
    for _ in range(50):
        check_call(f"aten.{name}.default", odd_sizes(rng))
        check_call(
            f"aten.{name}.default", odd_sizes(rng), dtype=rng.choice(ALL_DTYPES), device="cpu"
        )
    check_call(f"aten.{name}.default", [2, -1])


def test_empty() -> None:
    rng = random.Random(0)
    for _ in range(200):
        sizes = odd_sizes(rng, (0, 2, 4, 4, 5))
        check_call("aten.empty.memory_format", sizes, memory_format=rng.choice(FORMATS))


def test_numbers() -> None:
    for number in (2, 2.5, True, 2j):
        check_call("aten.full.default", [2, 3], number)
        check_call("aten.full.default", [2, 3], number, dtype=torch.float64)
        check_call("aten.scalar_tensor.default", number, refusals=False)
        check_call("aten.scalar_tensor.default", number, dtype=torch.complex64)


def test_default_dtype() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        check_call("aten.zeros.default", [2])
        check_call("aten.full.default", [2], 1.5)
        check_call("aten.arange.default", 2.5)
        check_call("aten.sin.default", torch.ones(2, dtype=torch.int64))
        check_call("aten.add.Tensor", torch.ones(2, dtype=torch.int64), 1.5)
    finally:
        torch.set_default_dtype(torch.float32)


LIKE = [
    "empty_like.default",
    "zeros_like.default",
    "ones_like.default",
    "clone.default",
    "_to_copy.default",
]


@pytest.mark.parametrize("name", LIKE)
def test_like(name: str) -> None:
    rng = random.Random(name)
    for _ in range(500):
        tensor = odd_tensor(rng, odd_sizes(rng, (0, 1, 2, 3, 4, 4)))
        options = {"memory_format": rng.choice(FORMATS)}
        if name != "clone.default" and rng.random() < 0.5:
            options["dtype"] = rng.choice(ALL_DTYPES)
        check_call(f"aten.{name}", tensor, **options)


def test_full_like_and_new() -> None:
    rng = random.Random(0)
    for _ in range(200):
        tensor = odd_tensor(rng, odd_sizes(rng), rng.choice(ALL_DTYPES))
        dtype = rng.choice((None, *ALL_DTYPES))
        check_call("aten.full_like.default", tensor, 1, dtype=dtype)
        check_call("aten.new_full.default", tensor, odd_sizes(rng), 1, dtype=dtype)
        for name in ("new_ones", "new_zeros", "new_empty"):
            check_call(f"aten.{name}.default", tensor, odd_sizes(rng), dtype=dtype)
        sizes = odd_sizes(rng)
        strides = [rng.randint(0, 6) for _ in sizes]
        check_call("aten.new_empty_strided.default", tensor, sizes, strides, dtype=dtype)
        check_call("aten.empty_strided.default", sizes, strides, dtype=dtype)


def test_devices() -> None:
    spec = meta_fns.TensorSpec.contiguous((2, 3))
    there = meta_fns.infer(
        "aten._to_copy.default", (spec,), {"device": "cuda:1", "dtype": torch.float16}
    )
    assert there.device == torch.device("cuda", 1)
    assert meta_fns.infer("aten.ones_like.default", (there,)).device == torch.device("cuda", 1)
    assert meta_fns.infer("aten.new_ones.default", (there, [2])).device == torch.device("cuda", 1)
    assert meta_fns.infer(
        "aten.new_ones.default", (there, [2]), {"device": "cpu"}
    ).device == torch.device("cpu")
    assert meta_fns.infer(
        "aten.zeros.default", ([2],), {"device": torch.device("cuda")}
    ).device == torch.device("cuda", 0)
    number = meta_fns.TensorSpec.contiguous(())
    assert meta_fns.infer("aten.add.Tensor", (number, there)).device == torch.device("cuda", 1)
    with pytest.raises(meta_fns.DtypeError):
        meta_fns.infer("aten.add.Tensor", (spec, there))
    with pytest.raises(meta_fns.DtypeError):
        meta_fns.infer(
            "aten.mm.default",
            (spec, meta_fns.infer("aten.t.default", (there,)).with_(dtype=torch.float32)),
        )
