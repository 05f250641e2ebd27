"""Tensors over a CUDA graph's memory without ownership: later captures from the pool may reuse the
memory.

Results of a replay are copied out before another graph of its stream is replayed, so the results of
all buckets can use the same memory.  The pool itself lives as long as any of its graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from symshape.torch_internals import cuda

__all__ = ["addresses", "unowned"]

_storage_at: Callable[[int, torch.device, int], Any] | None = cuda.storage_at
"""Returns a storage over memory with another owner (2.11 to 2.13; torch's CUDA graph trees use it).
"""


def addresses(tensors: Sequence[torch.Tensor]) -> frozenset[int]:
    """Return the addresses of the tensors' storages."""
    return frozenset(each.untyped_storage().data_ptr() for each in tensors)


def unowned(tensors: Sequence[torch.Tensor], before: Collection[int]) -> list[torch.Tensor]:
    """Return the same tensors; those with memory from a capture's pool are replaced by tensors that
    do not own it.

    Args:
        tensors: the results of a function during its capture.
        before: :func:`addresses` of the results of the same function just before, outside a
            capture: memory at one of them (an argument, a parameter, a constant) is not from the
            pool.
    """
    made: dict[int, Any] = {}
    found = []
    for each in tensors:
        memory = each.untyped_storage()
        address = memory.data_ptr()
        if (
            _storage_at is None
            or not address
            or address in before
            or each.is_conj()
            or each.is_neg()
        ):
            found.append(each)
            continue
        if address not in made:
            made[address] = _storage_at(address, each.device, memory.nbytes())
        over = torch.empty(0, dtype=each.dtype, device=each.device)
        found.append(over.set_(made[address], each.storage_offset(), each.size(), each.stride()))
    return found
