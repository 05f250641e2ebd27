"""Bytes of live tensors, counted by hand."""

from __future__ import annotations

import torch

from symshape.cost.live_bytes import LiveBytes


def test_peak_and_what_is_left() -> None:
    x = torch.ones(100)
    with LiveBytes([x, x[:50]]) as seen:  # one storage
        y = x + 1
        z = (y * 2).view(10, 10)[0]
        del y
    assert (seen.peak, seen.live) == (1200, 800)
    del z
    assert seen.live == 400


def test_counted_as_told() -> None:
    with LiveBytes([], lambda storage: -(-storage.nbytes() // 512) * 512) as seen:
        x = torch.ones(3)
        y = x + 1
    assert seen.peak == seen.live == 1024
    assert y.tolist() == [2, 2, 2]
