"""Reductions whose results are contiguous for any layout of their argument."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from symshape.graph.reshape_copies import CONTIGUOUS_RESULTS

aten = torch.ops.aten
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SEVERAL = {
    "sum": aten.sum.dim_IntList,
    "nansum": aten.nansum.default,
    "mean": aten.mean.dim,
    "var": aten.var.dim,
    "std": aten.std.dim,
    "var_mean": aten.var_mean.dim,
    "std_mean": aten.std_mean.dim,
    "amax": aten.amax.default,
    "amin": aten.amin.default,
    "all": aten.all.dims,
    "any": aten.any.dims,
    "logsumexp": aten.logsumexp.default,
    "linalg_vector_norm": lambda x, dims, keepdim: aten.linalg_vector_norm(x, 2, dims, keepdim),
}
ONE = {
    "prod": aten.prod.dim_int,
    "argmax": aten.argmax.default,
    "argmin": aten.argmin.default,
    "all": aten.all.dim,
    "any": aten.any.dim,
}
_UNBIASED = ("var", "std", "var_mean", "std_mean")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted({*SEVERAL, *ONE}))
def test_reductions_are_contiguous_for_any_layout(name: str, device: str) -> None:
    """All permutations, with and without gaps, and expanded dimensions."""
    assert f"aten::{name}" in CONTIGUOUS_RESULTS
    memory = torch.randn(4, 3, 1, 5, 2, device=device)[..., 0].expand(4, 3, 6, 5)
    calls: list[tuple[Any, Any]] = [
        (SEVERAL[name], list(dims))
        for count in range(1, 5)
        for dims in itertools.combinations(range(4), count)
        if name in SEVERAL
    ]
    calls += [(ONE[name], dim) for dim in range(4) if name in ONE]
    for order in itertools.permutations(range(4)):
        tensor = memory.permute(order)
        for op, dims in calls:
            for keepdim in (False, True):
                extra = (False,) if name in _UNBIASED else ()
                made = op(tensor, dims, *extra, keepdim)
                for each in made if isinstance(made, tuple) else (made,):
                    assert each.stride() == torch.empty(each.shape).stride(), (order, dims)
