"""The strides of views of other sizes that exist without copying."""

from __future__ import annotations

from collections.abc import Sequence

from meta_fns.core.layout import canonical, contiguous_strides
from meta_fns.core.sizes import Shape, Size, check, known, product, same, show, static
from meta_fns.errors import ShapeError

__all__ = ["infer_sizes", "view_strides", "view_strides_asking"]


def infer_sizes(old: Shape, new: Sequence[Size]) -> Shape:
    """Return the sizes that ``new`` (at most one -1) means for a tensor of sizes ``old``.

    Common sizes are cancelled before solving for the -1, so ``(b, s, h) -> (b, s, -1, d)`` gives
    ``h // d``.

    Raises: ShapeError if the numbers of elements cannot match.
    """
    hole = -1
    for i, size in enumerate(new):
        if size < 0 if type(size) is int else not known(size >= 0) and size < 0:
            if size != -1 or hole >= 0:
                raise ShapeError(f"view to {show(new)}: sizes are >= 0, and one may be -1")
            hole = i
    if static(old) and static(new):
        return _infer_static(old, new, hole)
    left, right = _cancel(old, [size for i, size in enumerate(new) if i != hole])
    total, rest = product(left), product(right)
    if hole < 0:
        if not same(total, rest):
            check(
                total == rest,
                lambda: f"view of {show(old)} to {show(new)}: the numbers of elements differ",
            )
        return tuple(new)
    if type(rest) is int and rest == 1:
        missing = total
    else:
        if type(rest) is int and rest == 0:
            raise ShapeError(
                f"view of {show(old)} to {show(new)}: -1 is ambiguous with a size of 0"
            )
        if not known(rest >= 1):
            check(
                rest != 0,
                lambda: f"view of {show(old)} to {show(new)}: -1 is ambiguous with a size of 0",
            )
        if not known(total % rest == 0):
            check(
                total % rest == 0,
                lambda: f"view of {show(old)} to {show(new)}: {total} is no multiple of {rest}",
            )
        missing = total // rest
    return (*new[:hole], missing, *new[hole + 1 :])


def _infer_static(old: Shape, new: Sequence[int], hole: int) -> Shape:
    total = product(old)
    rest = product(size for i, size in enumerate(new) if i != hole)
    if hole < 0:
        if total != rest:
            raise ShapeError(f"view of {show(old)} to {show(new)}: {total} elements are not {rest}")
        return tuple(new)
    if rest == 0:
        raise ShapeError(f"view of {show(old)} to {show(new)}: -1 is ambiguous with a size of 0")
    if total % rest:
        raise ShapeError(
            f"view of {show(old)} to {show(new)}: {total} elements are no multiple of {rest}"
        )
    return (*new[:hole], total // rest, *new[hole + 1 :])


def _cancel(old: Sequence[Size], new: Sequence[Size]) -> tuple[list[Size], list[Size]]:
    """Return both lists without their common positive sizes.  A size that may be 0 stays: all
    products are 0 then.
    """
    left = list(old)
    right: list[Size] = []
    for size in new:
        for i, other in enumerate(left):
            if (size is other or same(size, other)) and known(size >= 1):
                del left[i]
                break
        else:
            right.append(size)
    return left, right


def view_strides(sizes: Shape, strides: Shape, new: Shape) -> Shape | None:
    """Return the strides of a view of sizes ``new`` (of as many elements); None if eager must copy.

    Canonical tensors need no guard.  Else each run of dimensions that is dense in memory is matched
    with the new sizes that it covers.  A guard is recorded where the structure does not decide.

    Source: computeStride in ATen/TensorUtils.cpp (for plain ints, exactly that).
    """
    if static(sizes) and static(strides) and static(new):
        return _view_static(sizes, strides, new)
    if canonical(sizes, strides):
        return contiguous_strides(new)
    return _view_symbolic(sizes, strides, new)


def view_strides_asking(sizes: Shape, strides: Shape, new: Shape) -> Shape | None:
    """Return the strides of a view by eager's own comparisons: exact, but with guards whether sizes
    are 0 or 1.
    """
    return _view_static(sizes, strides, new)


def _view_static(sizes: Shape, strides: Shape, new: Shape) -> Shape | None:
    if not sizes:
        return (1,) * len(new)
    n = len(new)
    if product(sizes) == 0:
        whole = len(sizes) == n and all(
            size == other for size, other in zip(sizes, new, strict=True)
        )
        return strides if whole else contiguous_strides(new)
    out: list[Size] = [0] * n
    d = n - 1
    base = strides[-1]
    run: Size = 1
    seen: Size = 1
    for i in range(len(sizes) - 1, -1, -1):
        run *= sizes[i]
        if i == 0 or (sizes[i - 1] != 1 and strides[i - 1] != run * base):
            while d >= 0 and (seen < run or new[d] == 1):
                out[d] = seen * base
                seen *= new[d]
                d -= 1
            if seen != run:
                return None
            if i > 0:
                base = strides[i - 1]
                run = seen = 1
    return tuple(out) if d == -1 else None


def _view_symbolic(sizes: Shape, strides: Shape, new: Shape) -> Shape | None:
    """Match each run, from the right, with as many new sizes as cover it."""
    chunks = _runs(sizes, strides)
    out: list[Size] = [1] * len(new)
    d = len(new) - 1
    for position, (run_sizes, base) in enumerate(chunks):
        last = position == len(chunks) - 1
        left = list(run_sizes)
        stride: Size = base
        run = product(left)
        seen: Size = 1
        while d >= 0:
            size = new[d]
            done = same(seen, run)
            if done and not last and not same(size, 1):
                break
            if not done and not last and _overshoots(seen, size, run):
                return None
            out[d] = stride
            stride = stride * size
            seen = seen * size
            d -= 1
        if not same(seen, run) and seen != run:
            return None
    return tuple(out) if d < 0 else None


def _overshoots(seen: Size, size: Size, run: Size) -> bool:
    """Return whether a run of ``run`` elements, ``seen`` of them covered, provably cannot take
    another ``size``.
    """
    return known(seen * size > run)


def _runs(sizes: Shape, strides: Shape) -> list[tuple[list[Size], Size]]:
    """Return the maximal runs of dimensions (innermost first) that are one dense block each:
    ``(sizes, base stride)``.

    Dimensions of known size 1 belong to any run.
    """
    runs: list[tuple[list[Size], Size]] = []
    for i in range(len(sizes) - 1, -1, -1):
        size, stride = sizes[i], strides[i]
        if type(size) is int and size == 1:
            continue
        if runs:
            inner, base = runs[-1]
            expected = base
            for other in inner:
                expected = expected * other
            if same(stride, expected):
                inner.append(size)
                continue
            floored = base
            for other in inner:
                floored = floored * (other if type(other) is int else other.at_least_one())
            if same(stride, floored):
                inner.append(size)
                continue
        runs.append(([size], stride))
    return runs or [([], 1)]
