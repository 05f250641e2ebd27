"""Views of parts against eager, of tensors with odd layouts."""

from __future__ import annotations

import torch

import symshape
from tests.meta_fns.eager import check_call
from tests.meta_fns.ops.test_views import any_dim, tensors

HUGE = 2**63 - 1


def test_slice() -> None:
    bounds = (None, 0, 1, 2, 3, 7, -1, -2, -9, HUGE, -HUGE)
    for rng, tensor in tensors("slice", 1500):
        args = [
            any_dim(rng, tensor),
            rng.choice(bounds),
            rng.choice(bounds),
            rng.choice((1, 1, 2, 3, 0)),
        ]
        check_call("aten.slice.Tensor", tensor, *args)


def test_select() -> None:
    for rng, tensor in tensors("select", 600):
        check_call("aten.select.int", tensor, any_dim(rng, tensor), rng.randint(-6, 5))


def test_split() -> None:
    for rng, tensor in tensors("split", 600):
        check_call("aten.split.Tensor", tensor, rng.randint(-1, 6), any_dim(rng, tensor))


def test_split_with_sizes() -> None:
    for rng, tensor in tensors("split_with_sizes", 600):
        dim = any_dim(rng, tensor)
        try:
            size = tensor.size(dim)
        except IndexError:
            size = 3
        first = rng.randint(-1, size + 1)
        check_call(
            "aten.split_with_sizes.default",
            tensor,
            rng.choice(([first, size - first], [size], [])),
            dim,
        )


def test_diagonal() -> None:
    for rng, tensor in tensors("diagonal", 500):
        check_call(
            "aten.diagonal.default",
            tensor,
            rng.randint(-4, 4),
            any_dim(rng, tensor),
            any_dim(rng, tensor),
        )


def test_an_empty_diagonal_begins_where_the_tensor_does() -> None:
    def starts(x: torch.Tensor) -> list[int]:
        return [x.diagonal(offset).storage_offset() for offset in (-2, -1, 0, 1, 3)]

    traced = symshape.trace(starts, torch.ones(4, 5), dynamic=True)
    assert not traced.guards
    for sizes in ((4, 5), (0, 4), (4, 0), (1, 1), (1, 6), (3, 3), (6, 2)):
        x = torch.ones(sizes)
        assert traced(x) == starts(x)


def test_unfold() -> None:
    for rng, tensor in tensors("unfold", 400):
        check_call(
            "aten.unfold.default",
            tensor,
            any_dim(rng, tensor),
            rng.randint(-1, 5),
            rng.randint(0, 3),
        )
