"""Dimensions by number, against eager."""

from __future__ import annotations

import pytest
import torch

from meta_fns import ShapeError
from meta_fns.core.dims import wrap_dim, wrap_dims


@pytest.mark.parametrize("ndim", [0, 1, 3])
def test_wrap_dim(ndim: int) -> None:
    sizes = [2, 3, 4][:ndim]
    for dim in range(-5, 5):
        try:
            expected = list(torch.ones(sizes).cumsum(dim).size()) == sizes
        except IndexError:
            with pytest.raises(
                ShapeError,
                match=f"dimension {dim} is out of range for a tensor of {ndim} dimensions",
            ):
                wrap_dim(dim, ndim)
            continue
        assert expected
        assert wrap_dim(dim, ndim) == (dim % ndim if ndim else 0)


def test_wrap_dims_keeps_the_order() -> None:
    assert wrap_dims((-1, 0, 1), 3) == [2, 0, 1]
    assert wrap_dims((), 0) == []
    with pytest.raises(ShapeError, match=r"twice in \[0, -3\]"):
        wrap_dims((0, -3), 3)
    with pytest.raises(ShapeError, match="out of range"):
        wrap_dims((0, 3), 3)
