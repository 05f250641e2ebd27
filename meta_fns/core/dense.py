"""Layouts without gaps or overlaps, with any order of their dimensions in memory.

``empty_like`` and ``clone`` preserve them, and TensorIterator orders its output by them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core.layout import canonical, strides_of_format
from meta_fns.core.sizes import Shape, Size, at_least_one, decide, known, same, static

__all__ = [
    "compare",
    "dense_order",
    "dense_strides",
    "is_dense",
    "larger",
    "like_strides",
    "memory_order",
]


def dense_order(sizes: Sequence[Size], strides: Sequence[Size]) -> list[int] | None:
    """Return the dimensions from innermost to outermost if the tensor is provably a permuted
    contiguous one.

    Return None if it is not, or not provably, non-overlapping and dense.  Dimensions of known size
    1 come last.  No guard is recorded.
    """
    n = len(sizes)
    left = [i for i in range(n) if not (type(sizes[i]) is int and sizes[i] == 1)]
    order: list[int] = []
    expected: Size = 1
    while left:
        for k in range(len(left) - 1, -1, -1):
            i = left[k]
            if same(strides[i], expected):
                break
        else:
            return None
        del left[k]
        order.append(i)
        if left:
            size = sizes[i]
            expected = expected * (size if type(size) is int else at_least_one(size))
    return order + [i for i in range(n) if type(sizes[i]) is int and sizes[i] == 1]


def is_dense(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Return eager's ``is_non_overlapping_and_dense``, exact on ints; on symbolic sizes whether it
    is provable.

    No guard is recorded.
    """
    if not static(sizes) or not static(strides):
        return canonical(sizes, strides) or dense_order(sizes, strides) is not None
    n = len(sizes)
    if n == 1:
        return bool(sizes[0] < 2 or strides[0] == 1)
    if 0 in sizes:
        return True
    dense = 1
    for stride, size in sorted((strides[i], sizes[i]) for i in range(n) if sizes[i] > 1):
        if stride != dense:
            return False
        dense *= size
    return True


def dense_strides(sizes: Sequence[Size], strides: Sequence[Size]) -> Shape:
    """Return the strides of a fresh dense tensor with the same order of dimensions in memory
    (infer_dense_strides).
    """
    n = len(sizes)
    if n <= 1:
        return (1,) * n
    result: list[Size] = [1] * n
    stride: Size = 1
    for i in memory_order(sizes, [strides]):
        result[i] = stride
        size = sizes[i]
        if type(size) is int:
            if size > 1:
                stride = stride * size
        else:
            stride = stride * at_least_one(size)
    return tuple(result)


def memory_order(sizes: Sequence[Size], keys: Sequence[Sequence[Size]]) -> list[int]:
    """Return the dimensions from innermost to outermost, by TensorIterator's insertion sort.

    Args:
        sizes: the sizes of the dimensions.
        keys: the strides of each operand; the first operand that tells two dimensions apart
            decides.  A pair that none tells apart (strides of 0, or equal strides and a size not
            larger) does not move.
    """
    order = list(range(len(sizes) - 1, -1, -1))
    for i in range(1, len(order)):
        moving = i
        for other in range(i - 1, -1, -1):
            verdict = _outside(sizes, keys, order[other], order[moving])
            if verdict > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
            elif verdict < 0:
                break
    return order


def _outside(sizes: Sequence[Size], keys: Sequence[Sequence[Size]], a: int, b: int) -> int:
    """Return 1 if dimension ``a`` is outside ``b`` in memory, -1 if inside, 0 if no operand
    decides.
    """
    for key in keys:
        left, right = key[a], key[b]
        if same(left, 0) or same(right, 0):
            continue
        verdict = compare(left, right, sizes[a], sizes[b])
        if verdict:
            return verdict
        if larger(sizes[a], sizes[b]):
            return 1
    return 0


def compare(a: Size, b: Size, size_a: Size, size_b: Size) -> int:
    """Return -1, 0 or 1 as ``a`` is less than, equal to or greater than ``b``, with a guard if that
    is not provable.

    They are the strides of two dimensions of these sizes.  A stride that provably spans the other
    dimension is the larger: the two can only be equal where a size is 1.  Other strides may be
    equal, where elements share memory, and need a guard.
    """
    if type(a) is int and type(b) is int:
        return (a > b) - (a < b)
    if same(a, b):
        return 0
    if known(a >= b):
        return 1 if _spans(a, b, size_b) or a > b else 0
    if known(a <= b):
        return -1 if _spans(b, a, size_a) or a < b else 0
    if a < b:
        return -1
    return 1 if a > b else 0


def _spans(outer: Size, inner: Size, size: Size) -> bool:
    """Return whether ``outer`` is provably larger than ``inner``, or at least ``inner * size``.

    Strides that are 0 are not considered.
    """
    return (
        known(outer > inner)
        or known(outer >= inner * at_least_one(size))
        or known(outer >= inner * 2)
    )


def order_known(a: Size, b: Size) -> int:
    """Return what :func:`compare` returns, but 0 if nothing is provable; record no guard."""
    if type(a) is int and type(b) is int:
        return (a > b) - (a < b)
    if a is b:
        return 0
    if known(a > b):
        return 1
    return -1 if known(a < b) else 0


def larger(a: Size, b: Size) -> bool:
    """Return whether ``a > b``, for the sizes of two dimensions of one stride.

    A guard is recorded only if neither size is known to be 1.  If one is 1, the stride says nothing
    about the order, and the order does not matter.
    """
    order = order_known(a, b)
    if order or static((a, b)) or same(a, 1) or same(b, 1) or same(a, b):
        return order > 0
    return decide(a > b)


def like_strides(sizes: Shape, strides: Shape, memory_format: torch.memory_format | None) -> Shape:
    """Return the strides of ``empty_like``/``clone``: preserve_format (or None) keeps a dense
    layout.

    With preserve_format, a tensor that is not dense gets dense strides in the same order.  Another
    format has its own strides.
    """
    if memory_format is None or memory_format is torch.preserve_format:
        if canonical(sizes, strides) or is_dense(sizes, strides):
            return strides
        return dense_strides(sizes, strides)
    return strides_of_format(sizes, memory_format)
