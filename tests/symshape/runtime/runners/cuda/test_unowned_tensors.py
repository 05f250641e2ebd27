"""Tensors over memory that somebody else keeps; on a device, see tests/gpu/test_memory.py."""

from __future__ import annotations

import torch

from symshape.runtime.runners.cuda.unowned_tensors import addresses, unowned


def test_the_same_memory_and_layout() -> None:
    kept = torch.arange(12.0)
    outside = torch.ones(3)
    made = [kept.view(3, 4).t(), kept[2:8:2], outside, torch.empty(0)]
    found = unowned(made, addresses([outside]))
    for mine, theirs in zip(found, made, strict=True):
        assert torch.equal(mine, theirs)
        assert (mine.stride(), mine.storage_offset(), mine.data_ptr()) == (
            theirs.stride(),
            theirs.storage_offset(),
            theirs.data_ptr(),
        )
    assert found[2] is outside
    assert (
        found[0].untyped_storage()._cdata
        == found[1].untyped_storage()._cdata
        != kept.untyped_storage()._cdata
    )
    kept.fill_(5)
    assert bool((found[0] == 5).all())


def test_lazily_conjugated_ones_stay() -> None:
    made = torch.ones(3, dtype=torch.complex64).conj()
    assert unowned([made], frozenset())[0] is made
