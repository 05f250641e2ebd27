"""Tensors over the memory of a CUDA graph that do not keep it: what is captured later, from the same pool, may use it.

What a replay makes is copied out before another graph of its stream is replayed, so that the results of all buckets
can lie in the same memory.  The pool itself stays as long as any of its graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from symshape.torch_internals import cuda

__all__ = ["addresses", "unowned"]

_storage_at: Callable[[int, torch.device, int], Any] | None = cuda.storage_at
"""A storage over memory that belongs to somebody else (2.11 to 2.13; CUDA graph trees of torch are made with it)."""


def addresses(tensors: Sequence[torch.Tensor]) -> frozenset[int]:
    """Where the memory of tensors begins."""
    return frozenset(each.untyped_storage().data_ptr() for each in tensors)


def unowned(tensors: Sequence[torch.Tensor], before: Collection[int]) -> list[torch.Tensor]:
    """The same tensors, but for those whose memory came from the pool of a capture: these do not keep it.

    Args:
        tensors: what was made while a graph was captured.
        before: :func:`addresses` of what the same program made a moment before, outside of a capture: what begins at
            one of them (an argument, a parameter, a constant) is no memory of the pool.
    """
    made: dict[int, Any] = {}
    found = []
    for each in tensors:
        memory = each.untyped_storage()
        address = memory.data_ptr()
        if _storage_at is None or not address or address in before or each.is_conj() or each.is_neg():
            found.append(each)
            continue
        if address not in made:
            made[address] = _storage_at(address, each.device, memory.nbytes())
        over = torch.empty(0, dtype=each.dtype, device=each.device)
        found.append(over.set_(made[address], each.storage_offset(), each.size(), each.stride()))
    return found
