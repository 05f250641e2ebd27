"""View rules against eager, on tensors with odd layouts."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from tests.meta_fns.eager import check_call, odd_sizes, odd_tensor

TRIES = 250


def tensors(seed: str, tries: int = TRIES, dims: tuple[int, ...] = (0, 1, 2, 3, 4)) -> Any:
    rng = random.Random(seed)
    for _ in range(tries):
        yield rng, odd_tensor(rng, odd_sizes(rng, dims))


def any_dim(rng: random.Random, tensor: torch.Tensor) -> int:
    return rng.randint(-tensor.dim() - 1, tensor.dim())


@pytest.mark.parametrize("name", ["t", "alias", "detach", "lift_fresh", "squeeze"])
def test_without_arguments(name: str) -> None:
    for _, tensor in tensors(name):
        check_call(f"aten.{name}.default", tensor)


@pytest.mark.parametrize("name", ["unsqueeze.default", "squeeze.dim", "unbind.int"])
def test_one_dimension(name: str) -> None:
    for rng, tensor in tensors(name):
        check_call(f"aten.{name}", tensor, any_dim(rng, tensor))


def test_transpose() -> None:
    for rng, tensor in tensors("transpose"):
        check_call("aten.transpose.int", tensor, any_dim(rng, tensor), any_dim(rng, tensor))


def test_permute() -> None:
    for rng, tensor in tensors("permute"):
        order = list(range(tensor.dim()))
        rng.shuffle(order)
        if rng.random() < 0.3 and order:
            order[0] -= rng.choice((tensor.dim(), 1))
        check_call("aten.permute.default", tensor, order)


def test_squeeze_dims() -> None:
    for rng, tensor in tensors("squeeze"):
        check_call(
            "aten.squeeze.dims", tensor, [any_dim(rng, tensor) for _ in range(rng.randint(0, 2))]
        )


@pytest.mark.parametrize("name", ["view", "_unsafe_view", "reshape"])
def test_view(name: str) -> None:
    for rng, tensor in tensors(name, 1500):
        sizes = list(tensor.shape)
        for _ in range(rng.randint(0, 3)):
            change = rng.choice(("merge", "split", "one", "hole", "drop"))
            if change == "merge" and len(sizes) > 1:
                at = rng.randrange(len(sizes) - 1)
                sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
            elif change == "split" and sizes:
                at = rng.randrange(len(sizes))
                by = rng.choice((1, 2, max(sizes[at], 1)))
                if sizes[at] % by == 0:
                    sizes[at : at + 1] = [by, sizes[at] // by]
            elif change == "one":
                sizes.insert(rng.randint(0, len(sizes)), 1)
            elif change == "hole" and sizes:
                sizes[rng.randrange(len(sizes))] = rng.choice((-1, -1, -1, -2, 7))
            elif change == "drop" and 1 in sizes:
                sizes.remove(1)
        check_call(f"aten.{name}.default", tensor, sizes)


def test_expand() -> None:
    for rng, tensor in tensors("expand", 500):
        sizes = [rng.choice((s, s, -1, 3)) for s in tensor.shape]
        # (-1 for a new dimension of a 0-d tensor is left out: eager makes a tensor of size -1.)
        lead = [rng.choice((0, 1, 2, -1) if sizes else (0, 1, 2)) for _ in range(rng.randint(0, 2))]
        check_call("aten.expand.default", tensor, lead + sizes)


def test_complex_views() -> None:
    rng = random.Random(0)
    for _ in range(TRIES):
        check_call(
            "aten.view_as_real.default",
            odd_tensor(rng, odd_sizes(rng), rng.choice((torch.complex64, torch.float32))),
        )
        real = odd_tensor(
            rng,
            [*odd_sizes(rng, (0, 1, 2)), rng.choice((2, 2, 2, 3))],
            rng.choice((torch.float32, torch.int32)),
        )
        check_call("aten.view_as_complex.default", real)
        check_call("aten._conj.default", odd_tensor(rng, odd_sizes(rng), torch.complex64))


def test_view_dtype() -> None:
    rng = random.Random(0)
    dtypes = (torch.float32, torch.int32, torch.float64, torch.int8, torch.bool, torch.complex64)
    for _ in range(TRIES):
        check_call(
            "aten.view.dtype",
            odd_tensor(rng, odd_sizes(rng), rng.choice(dtypes)),
            rng.choice(dtypes),
        )


def test_in_place_views() -> None:
    for rng, tensor in tensors("inplace"):
        check_call("aten.transpose_.default", tensor, any_dim(rng, tensor), any_dim(rng, tensor))
        check_call("aten.unsqueeze_.default", tensor, any_dim(rng, tensor))
        check_call("aten.squeeze_.default", tensor)
        check_call("aten.t_.default", tensor)


def test_copies_of_views() -> None:
    for rng, tensor in tensors("copies"):
        check_call("aten.transpose_copy.int", tensor, any_dim(rng, tensor), any_dim(rng, tensor))
        check_call("aten.expand_copy.default", tensor, [2, *tensor.shape])
        check_call("aten.split_copy.Tensor", tensor, 2, any_dim(rng, tensor))
        check_call("aten.view_copy.default", tensor, [-1])
        check_call("aten.slice_copy.Tensor", tensor, any_dim(rng, tensor), 1)
