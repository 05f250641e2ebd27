"""Sizes and strides: broadcasting, contiguity, dense layouts.

On plain ints everything here is what eager computes, exactly. On symbolic sizes structure decides first (`same`,
`known`) and a question is
asked only where the answer changes the meaning. One thing is given up for that: where a symbolic size turns out to be
1, or the tensor
empty, the *stride* of such a dimension is the formula of the general case and may differ from the one eager reports.
No element is
addressed through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from meta_fns.core.sizes import Shape, Size, at_least_one, check, decide, known, same, show, static
from meta_fns.errors import ShapeError

__all__ = [
    "broadcast",
    "broadcast_size",
    "canonical",
    "channels_last_strides",
    "contiguous_strides",
    "dense_order",
    "dense_strides",
    "expand",
    "is_channels_last",
    "is_channels_last_strides",
    "is_contiguous",
    "is_dense",
    "larger",
    "like_strides",
    "same_shape",
    "strides_of_format",
    "suggested_format",
    "wrap_dim",
    "wrap_dims",
]


def wrap_dim(dim: int, ndim: int) -> int:
    """A dimension counted from the front; a 0-d tensor accepts 0 and -1.

    Raises: ShapeError if out of range.
    """
    n = ndim or 1
    if 0 <= dim < n:
        return dim
    if -n <= dim < 0:
        return dim + n
    raise ShapeError(f"dimension {dim} is out of range for a tensor of {ndim} dimensions")


def wrap_dims(dims: Iterable[int], ndim: int) -> list[int]:
    """Several dimensions counted from the front, in the order given.

    Raises: ShapeError if one is out of range or named twice.
    """
    wrapped = [wrap_dim(dim, ndim) for dim in dims]
    if len(set(wrapped)) != len(wrapped):
        raise ShapeError(f"a dimension appears twice in {list(dims)}")
    return wrapped


def contiguous_strides(sizes: Sequence[Size]) -> Shape:
    """Strides of a fresh contiguous tensor: each is the next one times `max(next size, 1)`."""
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
    """Strides of a fresh channels-last tensor, `(N, C, *spatial)` stored as `(N, *spatial, C)`, of 4 or 5
    dimensions.
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
    """Strides of a fresh tensor in a memory format (None is contiguous).

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
    """True if the strides are `contiguous_strides(sizes)`, as far as structure tells; never asks."""
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
    """What `Tensor.is_contiguous()` answers: dimensions of size 1 do not count, empty tensors are contiguous. May
    ask.
    """
    if canonical(sizes, strides) or _plainly_contiguous(sizes, strides):
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


def _plainly_contiguous(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether it is contiguous by its structure, whatever the sizes.  Never asks."""
    expected: Size = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if same(size, 1):
            continue
        if not same(stride, expected):
            return False
        expected = expected * size
    return True


def is_channels_last(sizes: Sequence[Size], strides: Sequence[Size], memory_format: torch.memory_format) -> bool:
    """What `Tensor.is_contiguous(memory_format=channels_last[_3d])` answers. May ask."""
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
    """Eager's stride heuristic for "this 4-d or 5-d tensor means channels last" (suggest_memory_format).

    A contiguous tensor never does; of others' symbolic strides it asks.
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
    """The same questions of symbolic sizes, in the same order."""
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
    """The memory format eager reads off the strides (`suggest_memory_format`)."""
    if len(sizes) in (4, 5) and is_channels_last_strides(sizes, strides):
        return torch.channels_last if len(sizes) == 4 else torch.channels_last_3d
    return torch.contiguous_format


def dense_order(sizes: Sequence[Size], strides: Sequence[Size]) -> list[int] | None:
    """The dimensions from innermost to outermost if the tensor is a permuted contiguous one, as far as structure
    tells; never asks.

    None if it is not, or not provably, non-overlapping and dense. Dimensions of known size 1 come last.
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
    """Eager's `is_non_overlapping_and_dense`; exact on ints, what is provable on symbolic sizes (never asks)."""
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
    """Strides of a fresh dense tensor that keeps the order of the dimensions in memory (eager's
    infer_dense_strides).
    """
    n = len(sizes)
    if n <= 1:
        return (1,) * n
    order = list(range(n - 1, -1, -1))
    # An insertion sort that leaves ambiguous pairs (a stride of 0, or an equal one with a size not larger) where they
    # are.
    for i in range(1, n):
        moving = i
        for other in range(i - 1, -1, -1):
            comparison = _should_swap(sizes, strides, order[other], order[moving])
            if comparison > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
            elif comparison < 0:
                break
    result: list[Size] = [1] * n
    stride: Size = 1
    for i in order:
        result[i] = stride
        size = sizes[i]
        if type(size) is int:
            if size > 1:
                stride = stride * size
        else:
            stride = stride * at_least_one(size)
    return tuple(result)


def _should_swap(sizes: Sequence[Size], strides: Sequence[Size], a: int, b: int) -> int:
    """1 if dimension `a` lies outside `b` in memory, -1 if inside, 0 if nothing tells them apart."""
    left, right = strides[a], strides[b]
    if same(left, 0) or same(right, 0):
        return 0
    order = compare(left, right)
    if order == 0:
        return 1 if larger(sizes[a], sizes[b]) else 0
    return order


def compare(a: Size, b: Size) -> int:
    """-1, 0 or 1 as `a` is less than, equal to or greater than `b`; asks only where it is not provable.

    Two strides where one is provably at least the other count as unequal: they can only meet where a size is 1.
    """
    if type(a) is int and type(b) is int:
        return (a > b) - (a < b)
    if same(a, b):
        return 0
    if known(a >= b):
        return 1
    if known(a <= b):
        return -1
    if a < b:
        return -1
    return 1 if a > b else 0


def order_known(a: Size, b: Size) -> int:
    """As `compare`, but 0 where nothing is provable; never asks."""
    if type(a) is int and type(b) is int:
        return (a > b) - (a < b)
    if a is b:
        return 0
    if known(a > b):
        return 1
    return -1 if known(a < b) else 0


def larger(a: Size, b: Size) -> bool:
    """Whether `a > b`, of the sizes of two dimensions of one stride; asks only where neither is known to be 1.

    Where one is 1 the stride alone tells nothing, and the order does not matter.
    """
    order = order_known(a, b)
    if order or static((a, b)) or same(a, 1) or same(b, 1) or same(a, b):
        return order > 0
    return decide(a > b)


def like_strides(sizes: Shape, strides: Shape, memory_format: torch.memory_format | None) -> Shape:
    """Strides of `empty_like`/`clone` of a tensor: preserve_format (or None) keeps a dense layout, else the format's
    own.
    """
    if memory_format is None or memory_format is torch.preserve_format:
        if canonical(sizes, strides) or is_dense(sizes, strides):
            return strides
        return dense_strides(sizes, strides)
    return strides_of_format(sizes, memory_format)


def same_shape(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """True if both shapes are provably equal; never asks."""
    if a is b:
        return True
    if len(a) != len(b):
        return False
    for left, right in zip(a, b, strict=True):  # noqa: SIM110 - hot
        if left is not right and not same(left, right):
            return False
    return True


def broadcast_size(a: Size, b: Size) -> Size:
    """The broadcast of two sizes: provably equal or 1 needs no question; else asks `a == b`, then `a == 1`, and
    requires `b == 1`.

    Raises: ShapeError if they do not broadcast.
    """
    if a is b:
        return a
    if type(a) is int:
        if a == 1:
            return b
        if type(b) is int:
            if a == b or b == 1:
                return a
            raise ShapeError(f"sizes {a} and {b} do not broadcast")
    elif type(b) is int and b == 1:
        return a
    equal = a == b
    if known(equal):
        return a if type(a) is int else b
    if not known(a == 1) and not known(b == 1) and equal:
        return a if type(a) is int else b
    if known(b == 1):
        return a
    if a == 1:
        return b
    check(b == 1, lambda: f"sizes {a} and {b} do not broadcast")
    return a


def broadcast(*shapes: Shape) -> Shape:
    """The broadcast of shapes, aligned at the last dimension. Returns one of them as the same object where it can.

    Raises: ShapeError if they do not broadcast.
    """
    result = shapes[0]
    for shape in shapes[1:]:
        if shape is result:
            continue
        if len(shape) > len(result):
            result, shape = shape, result
        lead = len(result) - len(shape)
        out: list[Size] | None = None
        for i, size in enumerate(shape):
            mine = result[lead + i]
            if mine is size or (type(size) is int and size == 1):
                continue
            try:
                both = broadcast_size(mine, size)
            except ShapeError as error:
                raise ShapeError(f"shapes {show(result)} and {show(shape)} do not broadcast: {error.message}") from None
            if both is not mine:
                if out is None:
                    out = list(result)
                out[lead + i] = both
        if out is not None:
            result = tuple(out)
            if len(shape) == len(result) and all(x is y for x, y in zip(result, shape, strict=True)):
                result = shape
    return result


def expand(sizes: Shape, strides: Shape, target: Sequence[Size]) -> tuple[Shape, Shape]:
    """Sizes and strides of `tensor.expand(target)`: -1 keeps a size, new and broadcast dimensions get stride 0.

    Asks `size == target` only where neither that nor `size == 1` is provable.
    Raises: ShapeError if a size is neither the target nor 1.
    """
    target = [-1 if type(size) is not int and not known(size >= 0) and size == -1 else size for size in target]
    lead = len(target) - len(sizes)
    if lead < 0:
        raise ShapeError(f"cannot expand a tensor of sizes {show(sizes)} to fewer dimensions, {show(target)}")
    n = len(target)
    out_sizes: list[Size] = [0] * n
    out_strides: list[Size] = [0] * n
    for i in range(n - 1, -1, -1):
        want = target[i]
        if i >= lead:
            size, stride = sizes[i - lead], strides[i - lead]
            if want is size or (type(want) is int and want == -1) or same(size, want):
                out_sizes[i], out_strides[i] = size, stride
                continue
            if not known(size == 1) and size == want:
                out_sizes[i], out_strides[i] = size, stride
                continue
            check(size == 1, lambda: f"cannot expand {show(sizes)} to {show(target)}: sizes differ and are not 1")
        elif type(want) is int and want == 1:
            # What eager gives a new dimension of size 1.
            out_sizes[i], out_strides[i] = 1, out_sizes[i + 1] * out_strides[i + 1] if sizes else 0
            continue
        check(want >= 0, lambda: f"cannot expand {show(sizes)} to {show(target)}: a new size is negative")
        out_sizes[i] = want
    return tuple(out_sizes), tuple(out_strides)
