"""Sizes and strides: contiguity and memory formats.

On plain ints all functions here return exactly what eager computes.  On symbolic sizes structure
decides first (``same``, ``known``), and a guard is recorded only where its outcome changes the
meaning.  The price is in strides. If a symbolic size turns out to be 1, or the tensor empty, the
*stride* of such a dimension is the formula of the general case, which may differ from eager's.  No
element is addressed through it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core.sizes import Shape, Size, at_least_one, decide, known, same, show, static
from meta_fns.errors import ShapeError

__all__ = [
    "canonical",
    "channels_last_strides",
    "contiguous_strides",
    "is_channels_last",
    "is_channels_last_strides",
    "is_contiguous",
    "plainly_contiguous",
    "strides_of_format",
    "suggested_format",
]


def contiguous_strides(sizes: Sequence[Size]) -> Shape:
    """Return the strides of a fresh contiguous tensor: each is the next one times
    ``max(next size, 1)``.
    """
    n = len(sizes)
    if n == 0:
        return ()
    strides: list[Size] = [1] * n
    stride: Size = 1
    for i in range(n - 1, 0, -1):
        size = sizes[i]
        if type(size) is int:
            if size > 1:
                stride = stride * size
        else:
            size = at_least_one(size)
            stride = size if type(stride) is int and stride == 1 else size * stride
        strides[i - 1] = stride
    return tuple(strides)


def channels_last_strides(sizes: Sequence[Size]) -> Shape:
    """Return the strides of a fresh channels-last tensor: ``(N, C, *spatial)`` (4-d or 5-d) as
    ``(N, *spatial, C)``.
    """
    n = len(sizes)
    order = [0, *range(2, n), 1]
    strides: list[Size] = [1] * n
    stride: Size = 1
    for position in range(n - 1, -1, -1):
        i = order[position]
        strides[i] = stride
        # Unlike in contiguous tensors a size of 0 counts as 0 here.
        stride = stride * sizes[i]
    return tuple(strides)


def strides_of_format(sizes: Sequence[Size], memory_format: torch.memory_format | None) -> Shape:
    """Return the strides of a fresh tensor in a memory format (None is contiguous).

    Raises: ShapeError for channels-last of another rank than the format has.
    """
    if memory_format is None or memory_format is torch.contiguous_format:
        return contiguous_strides(sizes)
    rank = 4 if memory_format is torch.channels_last else 5
    if memory_format is torch.preserve_format:
        raise ShapeError("preserve_format needs a tensor to preserve")
    if len(sizes) != rank:
        raise ShapeError(f"{memory_format} needs {rank} dimensions, got {show(sizes)}")
    return channels_last_strides(sizes)


def canonical(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Return whether the strides are provably ``contiguous_strides(sizes)``.  No guard is
    recorded.
    """
    expected: Size = 1
    for i in range(len(sizes) - 1, -1, -1):
        stride = strides[i]
        if stride is not expected and not same(stride, expected):
            return False
        if i:
            size = sizes[i]
            if type(size) is int:
                if size > 1:
                    expected = expected * size
            else:
                size = at_least_one(size)
                expected = size if type(expected) is int and expected == 1 else size * expected
    return True


def is_contiguous(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Return ``Tensor.is_contiguous()``.  A guard may be recorded.

    Dimensions of size 1 do not count, empty tensors are contiguous.
    """
    if canonical(sizes, strides) or plainly_contiguous(sizes, strides):
        return True
    for size in sizes:
        if size == 0:
            return True
    expected: Size = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if same(stride, expected):
            expected = expected * size
        elif size != 1:
            if stride != expected:
                return False
            expected = expected * size
    return True


def plainly_contiguous(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Return whether a layout is contiguous by its structure, for any sizes.  No guard is
    recorded.
    """
    expected: Size = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if same(size, 1):
            continue
        if not same(stride, expected):
            return False
        expected = expected * size
    return True


def is_channels_last(
    sizes: Sequence[Size], strides: Sequence[Size], memory_format: torch.memory_format
) -> bool:
    """Return ``Tensor.is_contiguous(memory_format=channels_last[_3d])``.  A guard may be
    recorded.
    """
    if len(sizes) != (4 if memory_format is torch.channels_last else 5):
        return False
    expected: Size = 1
    for i in (1, *range(len(sizes) - 1, 1, -1), 0):
        size = sizes[i]
        if same(size, 1):
            continue
        if not same(strides[i], expected):
            if size == 1:
                continue
            if strides[i] != expected:
                return False
        expected = expected * size
    return True


def is_channels_last_strides(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Return whether eager's stride heuristic takes this 4-d or 5-d tensor for channels last
    (suggest_memory_format).

    A contiguous tensor never is.  For other symbolic strides guards are recorded.
    """
    n = len(sizes)
    if n not in (4, 5) or canonical(sizes, strides):
        return False
    if not static(sizes) or not static(strides):
        return _asks_channels_last(sizes, strides)
    if strides[1] == 0:
        return False
    least = 0
    for i in (1, *range(n - 1, 1, -1), 0):
        size, stride = sizes[i], strides[i]
        if size == 0 or stride < least:
            return False
        if i == 0 and least == strides[1]:
            return False
        least = stride * size if size > 1 else stride
    return True


def _asks_channels_last(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Return :func:`is_channels_last_strides` of symbolic sizes, with guards in eager's order of
    comparisons.
    """
    n = len(sizes)
    if same(strides[1], 0) or decide(strides[1] == 0):
        return False
    least: Size = 0
    for i in (1, *range(n - 1, 1, -1), 0):
        size, stride = sizes[i], strides[i]
        if decide(size == 0) or not (known(stride >= least) or decide(stride >= least)):
            return False
        if i == 0 and (same(least, strides[1]) or decide(least == strides[1])):
            return False
        least = stride if same(size, 1) else stride * size
    return True


def suggested_format(sizes: Sequence[Size], strides: Sequence[Size]) -> torch.memory_format:
    """Return the memory format that eager infers from the strides (``suggest_memory_format``)."""
    if len(sizes) in (4, 5) and is_channels_last_strides(sizes, strides):
        return torch.channels_last if len(sizes) == 4 else torch.channels_last_3d
    return torch.contiguous_format
