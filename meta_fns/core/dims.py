"""Dimension numbers: negative ones count from the end."""

from __future__ import annotations

from collections.abc import Iterable

from meta_fns.errors import ShapeError

__all__ = ["wrap_dim", "wrap_dims"]


def wrap_dim(dim: int, ndim: int) -> int:
    """Return a dimension counted from the front; a 0-d tensor accepts 0 and -1.

    Raises: ShapeError if out of range.
    """
    n = ndim or 1
    if 0 <= dim < n:
        return dim
    if -n <= dim < 0:
        return dim + n
    raise ShapeError(f"dimension {dim} is out of range for a tensor of {ndim} dimensions")


def wrap_dims(dims: Iterable[int], ndim: int) -> list[int]:
    """Return several dimensions counted from the front, in the order given.

    Raises: ShapeError if one is out of range or named twice.
    """
    wrapped = [wrap_dim(dim, ndim) for dim in dims]
    if len(set(wrapped)) != len(wrapped):
        raise ShapeError(f"a dimension appears twice in {list(dims)}")
    return wrapped
