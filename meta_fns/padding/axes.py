"""Axes of padded tensors: what of a dimension, as large as its capacity, is valid.

A *size* of a padded tensor is an ``int``, all of which is valid, or a symbolic size with a
``capacity``: of positions ``0 … capacity - 1`` those before the (true) size are valid.  An *axis*
is the sizes whose product, the first slowest, a dimension is: ``view(batch * sequence, hidden)``
makes a dimension of two padded sizes, whose valid positions are not a prefix, and the view back
splits it again.  Axes are kept normal: no size 1, ints that follow a size merged into it (``s``
valid rows of 4 are ``4 * s`` valid elements).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from meta_fns.core.sizes import Size, known, product, same, show
from meta_fns.padding.refusals import Refuse

__all__ = [
    "Axis",
    "agree",
    "capacity",
    "capacity_of",
    "fractional",
    "is_padded",
    "length",
    "normal",
    "padded_sizes",
    "prefix",
    "regroup",
    "varies",
]

Axis = tuple[Size, ...]
"""The sizes of one dimension, outermost first; empty for a dimension of size 1."""


def varies(size: object) -> bool:
    """Return whether this is a padded size: symbolic, with a capacity."""
    # asked of the class: one whose capacity is unknown refuses to name it
    return hasattr(type(size), "capacity")


def fractional(size: object) -> bool:
    """Return whether this is a floating-point number that depends on the sizes (it has a
    ``formula``), and no size.
    """
    return hasattr(type(size), "formula")


def capacity(size: Size) -> int:
    """Return how large a size is in memory: an int, or an integer that follows the capacities by a
    formula.
    """
    found: int = size.capacity if varies(size) else size
    return found


def normal(sizes: Iterable[Size]) -> Axis:
    """The axis of these sizes in its one form."""
    found: list[Size] = []
    for size in sizes:
        if not varies(size) and size == 1:
            continue
        if found and not varies(size):
            found[-1] = found[-1] * size
        else:
            found.append(size)
    return tuple(found)


def length(axis: Axis) -> Size:
    """The true size of a dimension."""
    return product(axis)


def capacity_of(axis: Axis) -> int:
    """The size of a dimension in memory."""
    found = 1
    for size in axis:
        found *= capacity(size)
    return found


def is_padded(axis: Axis) -> bool:
    """Return whether some positions of the dimension are padding."""
    return any(varies(size) for size in axis)


def padded_sizes(axes: Iterable[Axis]) -> list[Size]:
    """The symbolic sizes in these axes, in order."""
    return [size for axis in axes for size in axis if varies(size)]


def prefix(axis: Axis) -> Size:
    """The true size of a dimension of which the valid positions come first.

    Raises: Refuse for one that is made of several padded sizes.
    """
    if len(axis) > 1:
        text = f"a dimension is made of {show(axis)}, whose valid positions do not come first"
        raise Refuse(
            text, *padded_sizes((axis,)), remedy="keep the dimensions separate until after this op"
        )
    return length(axis)


def agree(a: Axis, b: Axis) -> bool:
    """Return whether two axes provably have their valid positions at the same places."""
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def regroup(axes: Sequence[Axis], sizes: Sequence[Size]) -> tuple[Axis, ...]:
    """The axes of a view of other (true) sizes: sizes move between dimensions, and ints split off
    them.

    Raises: Refuse where a new size is not made of whole padded sizes.
    """
    if any(not varies(size) and size == 0 for axis in axes for size in axis):
        if any(varies(size) for size in sizes):
            raise Refuse("a view of an empty tensor", *(size for size in sizes if varies(size)))
        return tuple(normal((size,)) for size in sizes)
    stack = list(normal(size for axis in axes for size in axis))
    found = [normal(_take(stack, size, sizes)) for size in reversed(sizes)]
    if any(varies(left) or left != 1 for left in stack):
        raise Refuse(f"a view leaves {show(stack)} over", *padded_sizes((tuple(stack),)))
    return tuple(reversed(found))


def _take(stack: list[Size], wanted: Size, sizes: Sequence[Size]) -> list[Size]:
    """Take sizes off the end of the stack whose product is ``wanted``, splitting the last one taken
    if need be.
    """
    if not varies(wanted) and wanted == 1:
        return []
    taken: list[Size] = []
    while stack:
        last = stack.pop()
        if same(product([last, *taken]), wanted):
            return [last, *taken]
        for piece in _pieces(last, taken, wanted):
            if _divides(piece, last):
                stack.append(last // piece)
                return [piece, *taken]
        taken.insert(0, last)
    raise Refuse(
        f"a view to {show(sizes)}: {wanted} is not made of whole dimensions",
        *padded_sizes((tuple(taken),)),
    )


def _pieces(last: Size, taken: list[Size], wanted: Size) -> Iterator[int]:
    """Ints that, split off ``last``, would complete ``wanted``."""
    if not taken and not varies(wanted):
        yield int(wanted)
    if taken and varies(wanted):
        least = capacity(wanted) // max(capacity_of(tuple(taken)), 1)
        if same(least * product(taken), wanted):
            yield least


def _divides(piece: int, size: Size) -> bool:
    """Return whether a size is provably a multiple of ``piece``, as is its capacity."""
    return (
        piece > 0 and capacity(size) % piece == 0 and (not varies(size) or known(size % piece == 0))
    )
