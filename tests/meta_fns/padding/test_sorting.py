"""Medians of padded tensors whose padding is known."""

from __future__ import annotations

import torch

import symshape


def test_the_median_of_zeros_is_zero() -> None:
    """What is known of the tensor is not known of where it is NaN."""
    compiled = symshape.compile(
        lambda x: torch.zeros(3, x.numel()).median(1)[0], dynamic=True, runner="padded"
    )
    for n in (4, 3, 5, 10, 7):
        assert compiled(torch.ones(n)).tolist() == [0.0] * 3
    assert compiled.entries[0].runner.buckets
