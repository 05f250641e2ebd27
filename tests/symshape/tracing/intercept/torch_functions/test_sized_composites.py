"""Composites with sizes that vary: eager's bits, strides and errors, in one program for all
sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.tracing.intercept.torch_functions import sized_composites

SIZES = ((3, 5), (4, 7), (2, 6), (5, 3), (6, 9), (7, 11), (8, 4), (9, 13), (10, 8), (11, 12))

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "kron": lambda x: torch.kron(x, x + 1),
    "kron of a row": lambda x: torch.kron(x[0], x),
    "vander": lambda x: torch.vander(x[0]),
    "three powers": lambda x: torch.vander(x[0], 3, increasing=True),
    "pairs": lambda x: torch.combinations(x[0]),
    "pairs with themselves": lambda x: torch.combinations(x[0], with_replacement=True),
    "gradient": lambda x: torch.gradient(x[:, :3], dim=0),
    "gradient by a spacing": lambda x: torch.gradient(x, spacing=2.0, dim=1)[0],
    "covariance": lambda x: torch.cov(x),
    "covariance of columns": lambda x: torch.cov(x.T, correction=0),
    "correlation": lambda x: torch.corrcoef(x),
    "along a dimension": lambda x: x.take_along_dim(x.argsort(1), 1),
    "one along a dimension": lambda x: torch.take_along_dim(x, x.argmax(1, keepdim=True), dim=-1),
    "windows": lambda x: (
        torch.hann_window(x.shape[1]) + torch.hamming_window(x.shape[1], periodic=False)
    ),
    "other windows": lambda x: (
        torch.bartlett_window(x.shape[1], False) * torch.kaiser_window(x.shape[1])
    ),
    "window of doubles": lambda x: torch.blackman_window(x.shape[1], dtype=torch.float64),
    "signal's windows": lambda x: (
        torch.signal.windows.gaussian(x.shape[1]) + torch.signal.windows.hann(x.shape[1])
    ),
    "capacity": lambda x: x.flatten()[: int(x.numel() / 8 * 1.25)],
    "capacity of odd experts": lambda x: x.new_zeros(4, int(1.25 * x.numel() / 8)),
    "capacity, rounded up": lambda x: x.flatten()[
        : math.ceil(x.shape[0] * x.shape[1] * 2 * 1.25 / 8)
    ],
    "at least four": lambda x: x.new_zeros(max(int(x.numel() / 4 * 1.5), 4)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_for_all_sizes(name: str) -> None:
    fn = PROGRAMS[name]
    compiled = symshape.compile(fn, fullgraph=True)
    for b, n in SIZES:
        x = torch.randn(b, n)
        for one, other in zip(
            *(found if type(found) is tuple else (found,) for found in (fn(x), compiled(x))),
            strict=True,
        ):
            assert (one.dtype, one.stride()) == (other.dtype, other.stride())
            assert torch.equal(one, other)
    assert compiled.stats().traces <= 4


SAME: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = (
    (torch.kron, sized_composites.kron),
    (torch.vander, sized_composites.vander),
    (torch.gradient, sized_composites.gradient),
    (torch.cov, sized_composites.cov),
    (torch.corrcoef, sized_composites.corrcoef),
    (torch.take_along_dim, sized_composites.take_along_dim),
)


def _calls(
    b: int, n: int, dtype: torch.dtype
) -> list[list[tuple[tuple[Any, ...], dict[str, Any]]]]:
    x, y = (torch.randn(b, n) * 5).to(dtype), (torch.randn(n, b) * 5).to(dtype)
    matrices = (x, x.T, x[0])
    spacings: tuple[dict[str, Any], ...] = (
        {},
        {"dim": 0},
        {"dim": (1, 0)},
        {"spacing": 0.3, "dim": -1},
        {"edge_order": 2},
    )
    where = x.long().argsort(1)
    return [
        [
            ((p, q), {})
            for p, q in (
                (x, y),
                (x.T, y),
                (x, y.T[:, :1]),
                (x[0], y),
                (x.expand(2, b, n), y),
                (x, x[0, 0]),
            )
        ],
        [((x[0], many, rising), {}) for many in (None, 0, 1, 3) for rising in (True, False)]
        + [((x,), {}), ((x[0], -1), {})],
        [((x,), given) for given in spacings],
        [((p,), given) for p in matrices for given in ({}, {"correction": 0}, {"correction": 2})],
        [((p,), {}) for p in matrices],
        [
            ((x, where, 1), {}),
            ((x, where[:, :1]), {"dim": 1}),
            ((x[:1], where), {"dim": 1}),
            ((x, where), {}),
            ((x, where, 5), {}),
        ],
    ]


@pytest.mark.filterwarnings("ignore:cov\\(\\):UserWarning")
@pytest.mark.filterwarnings("ignore:.*degrees of freedom:UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_as_torch_computes_them(dtype: torch.dtype) -> None:
    def went(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        try:
            found = function(*args, **kwargs)
        except (RuntimeError, IndexError) as error:
            return type(error)
        tensors = found if isinstance(found, (tuple, list)) else [found]
        return [(each.dtype, each.stride(), each.nan_to_num().tolist()) for each in tensors]

    for b, n in itertools.product((1, 2, 3), (1, 2, 5)):
        for (theirs, ours), calls in zip(SAME, _calls(b, n, dtype), strict=True):
            for args, kwargs in calls:
                assert went(ours, args, kwargs) == went(theirs, args, kwargs), (ours, b, n, kwargs)
