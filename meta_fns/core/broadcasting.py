"""Broadcasting: the shape to which shapes broadcast, and the strides of the result.

A guard on symbolic sizes is recorded only if their structure does not tell whether they are equal,
or 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from meta_fns.core.sizes import (
    Cond,
    Shape,
    Size,
    check,
    holds_here,
    known,
    only_at_run_time,
    presumed,
    same,
    show,
    told,
)
from meta_fns.errors import ShapeError

__all__ = ["broadcast", "broadcast_size", "expand"]


def broadcast_size(a: Size, b: Size) -> Size:
    """Return the size to which two sizes broadcast.

    Sizes that are provably equal, or 1, need no guard.  Else the first of ``a == b``, ``b == 1``
    and ``a == 1`` that holds in this call becomes a guard.  If only data decide, ``a == b`` is
    assumed and checked at run time.

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
    if known(b == 1):
        return a
    if known(a == 1):
        return b
    # One guard, which holds in this call; if two of the conditions hold, their results are the
    # same.
    for asked, size in ((equal, a if type(a) is int else b), (b == 1, a), (a == 1, b)):
        if holds_here(asked) and asked:
            return size
    if not _may_spread(a, b, equal) or presumed(equal, lambda: f"sizes {a} and {b} differ"):
        return told(a, b)
    if equal:
        return a if type(a) is int else b
    if a == 1:
        return b
    check(b == 1, lambda: f"sizes {a} and {b} do not broadcast")
    return a


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape to which shapes broadcast, aligned at the last dimension; where possible,
    one of them itself.

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
                raise ShapeError(
                    f"shapes {show(result)} and {show(shape)} do not broadcast: {error.message}"
                ) from None
            if both is not mine:
                if out is None:
                    out = list(result)
                out[lead + i] = both
        if out is not None:
            result = tuple(out)
            if len(shape) == len(result) and all(
                x is y for x, y in zip(result, shape, strict=True)
            ):
                result = shape
    return result


def expand(sizes: Shape, strides: Shape, target: Sequence[Size]) -> tuple[Shape, Shape]:
    """Return the sizes and strides of ``tensor.expand(target)``: -1 keeps a size, new dimensions
    have stride 0.

    Dimensions of size 1 that are expanded have stride 0, too.  A guard on ``size == target`` is
    recorded only if neither that nor ``size == 1`` is provable; if only data decide, it is assumed
    and checked at run time.

    Raises: ShapeError if a size is neither the target nor 1.
    """
    target = [
        -1 if type(size) is not int and not known(size >= 0) and size == -1 else size
        for size in target
    ]
    lead = len(target) - len(sizes)
    if lead < 0:
        raise ShapeError(
            f"cannot expand a tensor of sizes {show(sizes)} to fewer dimensions, {show(target)}"
        )
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
            if not known(size == 1) and _equal(size, want):
                out_sizes[i], out_strides[i] = size, stride
                continue
            check(
                size == 1,
                lambda: (
                    f"cannot expand {show(sizes)} to {show(target)}: sizes differ and are not 1"
                ),
            )
        elif type(want) is int and want == 1:
            # eager's stride of a new dimension of size 1
            out_sizes[i], out_strides[i] = 1, out_sizes[i + 1] * out_strides[i + 1] if sizes else 0
            continue
        check(
            want >= 0,
            lambda: f"cannot expand {show(sizes)} to {show(target)}: a new size is negative",
        )
        out_sizes[i] = want
    return tuple(out_sizes), tuple(out_strides)


def _equal(size: Size, want: Size) -> bool:
    equal = size == want
    if only_at_run_time(equal) and known(size != 1):
        check(equal, lambda: f"sizes {size} and {want} differ")
        return True
    return presumed(equal, lambda: f"sizes {size} and {want} differ") or bool(equal)


def _may_spread(a: Size, b: Size, equal: Cond) -> bool:
    """Return whether one of two different sizes may be 1; if neither can be, and only data decide,
    require equality.
    """
    if not only_at_run_time(equal) or not known(a != 1) or not known(b != 1):
        return True
    check(equal, lambda: f"sizes {a} and {b} do not broadcast")
    return False
