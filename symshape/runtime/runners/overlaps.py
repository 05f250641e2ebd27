"""Whether what a program writes could be seen through another tensor: then copies of its inputs are no good."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import torch

__all__ = ["overlap", "overlaps_itself"]


def overlap(inputs: Iterable[tuple[torch.Tensor, bool]], others: Iterable[torch.Tensor]) -> bool:
    """Whether an input that is written may share elements with another input, with itself, or with other tensors.

    Args:
        inputs: the tensors of a call, and whether each is written.
        others: parameters and buffers: those in the same storage as an input count as overlapping.
    """
    memory: dict[int, list[tuple[int, int, bool]]] = {}
    for tensor, written in inputs:
        if tensor.numel():
            if written and overlaps_itself(tensor):
                return True
            start = tensor.data_ptr()
            end = start + (1 + _reach(tensor)) * tensor.element_size()
            memory.setdefault(tensor.untyped_storage().data_ptr(), []).append((start, end, written))
    for ranges in memory.values():
        if len(ranges) > 1 and any(written for _, _, written in ranges):
            ranges.sort()
            if any(before[1] > after[0] for before, after in pairwise(ranges)):
                return True
    return any(each.untyped_storage().data_ptr() in memory for each in others)


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements of a tensor may share memory.

    >>> overlaps_itself(torch.zeros(4, 6)[:, ::2]), overlaps_itself(torch.zeros(1, 6).expand(4, 6))
    (False, True)
    """
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def _reach(tensor: torch.Tensor) -> int:
    """How far the last element lies behind the first, in elements."""
    return sum(stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.size(), strict=True))
