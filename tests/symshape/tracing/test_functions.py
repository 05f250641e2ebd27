"""Functions that are answered before C++: shapes, indexing by sizes, resizing, choices, and readers of data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import symshape
from symshape import Dim, UnsupportedError
from tests.symshape.eager import agree

R = torch.randn
CUBES = [(R(4, 6, 5),), (R(2, 3, 7),), (R(3, 1, 2),), (R(1, 1, 1),), (R(0, 2, 2),), (R(5, 0, 3),)]


def fixed(traced: symshape.Traced) -> list[str]:
    """Guards that fix one symbol to one value."""
    return [
        str(guard.term)
        for guard in traced.guards
        if str(guard.term).partition(" == ")[0] in traced.symbols and str(guard.term).rpartition(" ")[2].isdigit()
    ]


# -- shapes


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.shape,
        lambda x: x.size(),
        lambda x: (x.size(0), x.size(-1), x.size(dim=1), x.shape[-2:]),
        lambda x: (x.stride(), x.stride(0), x.stride(dim=-1)),
        lambda x: (x.dim(), x.ndim, x.ndimension(), x.numel(), x.nelement(), torch.numel(x)),
        lambda x: (x.dtype, x.device, x.layout, x.is_floating_point(), x.itemsize, x.nbytes),
        lambda x: (x.storage_offset(), x.is_contiguous(), x.requires_grad, x.is_leaf, x.is_cuda),
        lambda x: (x.T.shape if x.dim() == 2 else x.mT.shape, x.size()[0] + 1),
        lambda x: x.reshape(shape=(-1,)),
        lambda x: torch.reshape(x, (-1,)),
        lambda x: torch.reshape(input=x, shape=(-1,)),
        lambda x: x.reshape([x.size(0), -1]),
        lambda x: x.reshape(x.size(0), -1, 1),
        lambda x: x.reshape(()) if x.numel() == 1 else x,
        lambda x: torch.flatten(x, 1),
        lambda x: x.flatten(start_dim=1),
        lambda x: torch.flatten(input=x),
        lambda x: (torch.is_tensor(x), isinstance(x, torch.Tensor), hasattr(x, "shape"), bool(x.shape)),
    ],
)
def test_shapes(fn: Any) -> None:
    traced, seen = agree(fn, (R(4, 6),), (R(2, 3),), (R(1, 5),), (R(3, 3),))
    assert not fixed(traced)
    assert seen.count("equal") >= 3


def test_a_dimension_that_does_not_exist() -> None:
    for fn in (lambda x: x.size(3), lambda x: x.stride(-4), lambda x: x.shape[2], lambda x: torch.flatten(x, 5)):
        with pytest.raises(IndexError):
            symshape.trace(fn, R(2, 3))


# -- indexing by sizes


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[x.size(0) // 2],
        lambda x: x[:, x.size(1) - 1],
        lambda x: x[..., x.size(2) // 2],
        lambda x: x[x.size(0) - 1, :, None, 1:],
        lambda x: x[None, :, x.size(1) // 2],
        lambda x: x[x.size(0) // 3, x.size(1) // 3, x.size(2) // 3],
        lambda x: x[-x.size(0)],
        lambda x: x[::2, x.size(1) // 2, ...],
        lambda x: x[x.size(0) // 2 :, : x.size(1) - 1],
        lambda x: x[1 : x.size(0)],
        lambda x: x[: -x.size(0) // 2],
    ],
)
def test_indexing_by_sizes_fixes_nothing(fn: Any) -> None:
    traced, seen = agree(fn, *CUBES)
    assert not fixed(traced)
    assert seen.count("equal") >= 4
    symshape.trace(fn, *CUBES[0], dynamic={"x": [Dim("a"), Dim("b"), Dim("c")]})


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[x.size(0) // 2, torch.tensor([0])],
        lambda x: x[[0, 1]],
        lambda x: x[x > 0],
        lambda x: x[0, ..., -1],
        lambda x: x[True],
        lambda x: x[torch.tensor([True, False, True, False])] if x.size(0) == 4 else x,
        lambda x: x[:, torch.arange(x.size(1)), 0],
    ],
)
def test_other_indices(fn: Any) -> None:
    agree(fn, *CUBES)


def test_an_index_that_depends_on_data() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        n = i.item()
        torch._check(n >= 0)
        torch._check(n < x.size(0))
        return x[n] + x[n, ...]

    traced, seen = agree(fn, (R(4, 2), torch.tensor(3)), (R(9, 5), torch.tensor(0)), (R(1, 1), torch.tensor(0)))
    assert set(seen) == {"equal"}
    with pytest.raises(RuntimeError):
        traced(R(4, 2), torch.tensor(4))


def test_an_index_out_of_range() -> None:
    for fn in (lambda x: x[x.size(0)], lambda x: x[:, -x.size(1) - 1], lambda x: x[x.size(0), 0, 0, 0]):
        with pytest.raises((symshape.ProgramError, IndexError)):
            symshape.trace(fn, R(4, 6, 5))


# -- resizing

IMAGES = [(R(1, 2, 4, 6),), (R(2, 3, 7, 3),), (R(3, 1, 2, 2),), (R(1, 1, 3, 8),)]


@pytest.mark.parametrize(
    "options",
    [
        {"scale_factor": 2},
        {"scale_factor": (2, 1.5)},
        {"scale_factor": 2, "mode": "bilinear"},
        {"size": (7, 8), "mode": "bicubic"},
        {"size": 6, "mode": "bilinear", "align_corners": True},
        {"scale_factor": 0.5, "mode": "bilinear", "antialias": True},
        {"size": (5, 5), "mode": "bicubic", "antialias": True},
        {"scale_factor": 2.5, "recompute_scale_factor": True, "mode": "bicubic"},
        {"scale_factor": 2, "mode": "nearest-exact"},
        {"size": 6, "mode": "area"},
        {"scale_factor": 2, "mode": "area"},
    ],
    ids=str,
)
def test_interpolate(options: dict[str, Any]) -> None:
    traced, seen = agree(lambda x: F.interpolate(x, **options), *IMAGES)
    assert seen == ["equal"] * 4
    assert not fixed(traced)


def test_interpolate_to_sizes_of_the_program() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=(x.size(2) * 2, x.size(3) + 1), mode="bilinear")

    traced, seen = agree(fn, *IMAGES)
    assert seen == ["equal"] * 4
    assert [str(size) for size in traced.output_specs.sizes] == ["s0", "s1", "2*s2", "s3 + 1"]
    agree(nn.Upsample(scale_factor=2), *IMAGES)
    agree(lambda x: F.interpolate(x, scale_factor=2, mode="linear"), (R(1, 2, 4),), (R(2, 2, 7),))
    agree(
        lambda x: F.interpolate(x, size=(x.size(-1), 3, 4), mode="trilinear"), (R(1, 2, 4, 3, 3),), (R(2, 2, 7, 2, 2),)
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"size": 3, "scale_factor": 2},
        {"size": (1, 2, 3)},
        {"scale_factor": 2, "mode": "no such"},
        {"size": 4, "align_corners": True},
    ],
    ids=str,
)
def test_interpolate_refuses_what_eager_refuses(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, NotImplementedError)):
        F.interpolate(R(1, 2, 4, 6), **options)
    with pytest.raises((ValueError, NotImplementedError)):
        symshape.trace(lambda x: F.interpolate(x, **options), R(1, 2, 4, 6))


# -- one_hot keeps its check


def test_one_hot() -> None:
    a = torch.tensor
    _, seen = agree(lambda x: F.one_hot(x, 6), (a([1, 2]),), (a([7]),), (torch.zeros(0, dtype=torch.long),), (a([3]),))
    assert seen == ["equal", "equal error", "equal", "equal"]
    _, seen = agree(lambda x: F.one_hot(x), (a([1, 2]),), (a([7]),), (torch.zeros(0, dtype=torch.long),))
    assert seen == ["equal", "equal", "refused"]


# -- readers


def test_what_reads_the_data_of_an_argument_is_refused() -> None:
    for fn, what in ((lambda x: x.numpy(), "numpy"), (lambda x: x.data_ptr(), "data_ptr")):
        with pytest.raises(UnsupportedError, match=what):
            symshape.trace(fn, R(3))


def test_attention_flags_that_depend_on_sizes() -> None:
    def fn(q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q, is_causal=q.size(-2) > 1)

    _, seen = agree(fn, (R(2, 3, 4, 8),), (R(1, 3, 7, 8),), (R(2, 3, 1, 8),))
    assert seen == ["equal", "equal", "refused"]
    assert F.scaled_dot_product_attention.__name__ == "scaled_dot_product_attention"
