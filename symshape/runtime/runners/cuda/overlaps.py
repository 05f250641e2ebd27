"""The check whether memory that a program writes is shared with another tensor, so that copies
would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from symshape.torch_internals import operators

__all__ = ["may_overlap", "overlap", "overlaps_itself"]


def overlap(inputs: Iterable[tuple[torch.Tensor, bool]], others: Iterable[torch.Tensor]) -> bool:
    """Return whether a written input may share elements with another input, with itself, or with
    other tensors.

    Args:
        inputs: the tensors of a call, and whether each is written.
        others: parameters and buffers: those in the same storage as an input count as overlapping.
    """
    ranges: list[tuple[int, int, bool]] = []
    storages: set[int] = set()
    for tensor, written in inputs:
        if tensor.numel():
            if written and overlaps_itself(tensor):
                return True
            start = tensor.data_ptr()
            ranges.append((start, start + (1 + _reach(tensor)) * tensor.element_size(), written))
            storages.add(tensor.untyped_storage().data_ptr())
    return _meet(ranges) or any(each.untyped_storage().data_ptr() in storages for each in others)


def may_overlap(inputs: Sequence[tuple[torch.Tensor, bool]]) -> bool:
    """Return :func:`overlap` of these inputs without other tensors; faster if no two inputs share a
    storage.
    """
    ranges: list[tuple[int, int, bool]] = []
    for tensor, written in inputs:
        if written and operators.may_overlap_itself(tensor) and overlaps_itself(tensor):
            return True
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        ranges.append((start, start + storage.nbytes(), written))
    return _meet(ranges) and overlap(inputs, ())


def _meet(ranges: list[tuple[int, int, bool]]) -> bool:
    """Return whether a written range of bytes has bytes in common with another range."""
    last = written_until = 0
    # across storages: NumPy arrays may be parts of others
    for start, end, written in sorted(ranges):
        if start < end and (start < written_until or (written and start < last)):
            return True
        last = max(last, end)
        written_until = max(written_until, end if written else 0)
    return False


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Return whether two elements of a tensor may share memory.

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
    """Return the distance from a tensor's first to its last element, in elements."""
    return sum(
        stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.size(), strict=True)
    )
