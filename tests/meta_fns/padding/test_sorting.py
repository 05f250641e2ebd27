"""Medians of padded tensors whose padding is known."""

from __future__ import annotations

import pytest
import torch

import symshape
from tests.meta_fns.padding.poison import ints, poisoned


def test_the_median_of_zeros_is_zero() -> None:
    """What is known of the tensor is not known of where it is NaN."""
    compiled = symshape.compile(
        lambda x: torch.zeros(3, x.numel()).median(1)[0], dynamic=True, runner="padded"
    )
    for n in (4, 3, 5, 10, 7):
        assert compiled(torch.ones(n)).tolist() == [0.0] * 3
    assert compiled.entries[0].runner.buckets


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_the_median_of_nothing_is_nan_as_an_integer(dtype: torch.dtype) -> None:
    outcome = poisoned(
        lambda x: (x[3:].median(), x[3:].nanmedian()),
        ints(5, dtype=dtype),
        samples=24,
    )
    assert not outcome.plan.refusals
    assert outcome.compared >= 12
