"""Reductions and scans against eager."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from tests.meta_fns.eager import ALL_DTYPES, check_call, odd_sizes, odd_tensor

ALL = ["sum", "prod", "mean", "all", "any", "max", "min"]


def cases(seed: str, tries: int = 200) -> Any:
    rng = random.Random(seed)
    for _ in range(tries):
        yield rng, odd_tensor(rng, odd_sizes(rng), rng.choice((torch.float32, *ALL_DTYPES)))


def some_dim(rng: random.Random, tensor: torch.Tensor) -> int:
    return rng.randint(
        -tensor.dim() - (rng.random() < 0.1), max(tensor.dim() - 1, 0) + (rng.random() < 0.1)
    )


def some_dims(rng: random.Random, tensor: torch.Tensor) -> list[int] | None:
    return rng.choice((None, [], [some_dim(rng, tensor) for _ in range(rng.randint(1, 3))]))


@pytest.mark.parametrize("name", ALL)
def test_all_elements(name: str) -> None:
    for rng, tensor in cases(name):
        check_call(f"aten.{name}.default", tensor)
        if name in ("sum", "prod", "mean"):
            check_call(f"aten.{name}.default", tensor, dtype=rng.choice((None, *ALL_DTYPES)))


@pytest.mark.parametrize("name", ["sum.dim_IntList", "mean.dim", "nansum.default"])
def test_dims_and_dtype(name: str) -> None:
    for rng, tensor in cases(name, 500):
        dtype = rng.choice((None, None, *ALL_DTYPES))
        # torch before 2.13 knows no nansum into integers
        refusals = name != "nansum.default" or torch.__version__ >= "2.13"
        check_call(
            f"aten.{name}",
            tensor,
            some_dims(rng, tensor),
            rng.random() < 0.5,
            dtype=dtype,
            refusals=refusals,
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all.dims", "any.dims", "amax.default", "amin.default"])
def test_dims(name: str) -> None:
    for rng, tensor in cases(name, 500):
        dims = some_dims(rng, tensor)
        if dims is None and name.startswith("a") and "m" in name[:2]:
            dims = []
        check_call(f"aten.{name}", tensor, dims, rng.random() < 0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "all.dim",
        "any.dim",
        "max.dim",
        "min.dim",
        "argmax.default",
        "argmin.default",
        "prod.dim_int",
    ],
)
def test_dim(name: str) -> None:
    for rng, tensor in cases(name, 400):
        check_call(f"aten.{name}", tensor, some_dim(rng, tensor), rng.random() < 0.5)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_flat_position(name: str) -> None:
    for rng, tensor in cases(name):
        check_call(f"aten.{name}.default", tensor, None, rng.random() < 0.5)


def test_aminmax() -> None:
    for rng, tensor in cases("aminmax"):
        check_call(
            "aten.aminmax.default",
            tensor,
            dim=rng.choice((None, some_dim(rng, tensor))),
            keepdim=rng.random() < 0.5,
        )


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_var(name: str) -> None:
    for rng, tensor in cases(name, 300):
        check_call(
            f"aten.{name}.correction",
            tensor,
            some_dims(rng, tensor),
            correction=1,
            keepdim=rng.random() < 0.5,
        )


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_scans(name: str) -> None:
    for rng, tensor in cases(name, 300):
        check_call(
            f"aten.{name}.default",
            tensor,
            some_dim(rng, tensor),
            dtype=rng.choice((None, None, torch.float64, torch.int64)),
        )


@pytest.mark.parametrize("name", ["logsumexp", "count_nonzero", "logcumsumexp"])
def test_others(name: str) -> None:
    for rng, tensor in cases(name, 300):
        if name == "logcumsumexp":
            check_call("aten.logcumsumexp.default", tensor, some_dim(rng, tensor))
        elif name == "count_nonzero":
            check_call("aten.count_nonzero.dim_IntList", tensor, some_dims(rng, tensor) or [])
        else:
            check_call(
                "aten.logsumexp.default", tensor, some_dims(rng, tensor) or [0], rng.random() < 0.5
            )


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_scans_into(name: str) -> None:
    """They run in the dtype of what is written, for which bool has a kernel only where there is
    nothing to do.
    """
    for sizes in ((), (0,), (1,), (3,), (0, 3), (2, 1)):
        for dtype in ALL_DTYPES:
            for out in (
                torch.float32,
                torch.float16,
                torch.int64,
                torch.uint8,
                torch.bool,
                torch.complex64,
            ):
                tensor = torch.ones(sizes, dtype=dtype)
                check_call(f"aten.{name}.out", tensor, 0, out=torch.ones(sizes, dtype=out))
                check_call(
                    f"aten.{name}.out",
                    tensor,
                    -1,
                    dtype=torch.float32,
                    out=torch.ones(sizes, dtype=out),
                )
                check_call(f"aten.{name}_.default", tensor, 0, dtype=out)
            check_call(f"aten.{name}_.default", torch.ones(sizes, dtype=dtype), -1)
            check_call(f"aten.{name}.out", torch.ones(sizes, dtype=dtype), 0, out=torch.ones(5))
        check_call(f"aten.{name}.out", torch.ones(sizes), 0, out=torch.ones(()).expand(sizes))
