"""The results of a replayed graph as rows that C++ reads (``runners/compiled_launch.cpp``): how
each result is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

__all__ = [
    "Apart",
    "Row",
    "again",
    "clone",
    "copied_out",
    "known",
    "leaf",
    "number",
    "part",
    "view",
]

Row = tuple[int, int, Any, tuple[int, ...], tuple[int, ...]]
"""A row: the kind, by its number in C++; an index; an object; indices of sizes and of strides among
the numbers.
"""

Apart = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Dimensions that are products of several sizes, for C++.

The indices of all these sizes among the numbers, their capacities, and the number of sizes in each
dimension.
"""

_KNOWN, _LEAF, _CLONE, _PART, _AGAIN, _VIEW, _NUMBER = range(7)


def known(result: Any) -> Row:
    """Return the row of a result that is the same object in every call: a number, a parameter."""
    return _KNOWN, 0, result, (), ()


def leaf(position: int) -> Row:
    """Return the row of a result that is an argument itself."""
    return _LEAF, position, None, (), ()


def clone(tensor: torch.Tensor) -> Row:
    """Return the row of a copy of a tensor that a replay writes, with its sizes and strides."""
    return _CLONE, 0, tensor, (), ()


def part(
    place: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    apart: Apart | None = None,
    memory: tuple[int, int] | None = None,
) -> Row:
    """Return the row of a copy of the leading part, of these sizes, of a tensor that a replay
    returns.

    Args:
        place: the index of the tensor.
        sizes: the indices of the part's sizes among the numbers.
        strides: the indices of the copy's strides among the numbers.
        apart: the split of dimensions that are products of several sizes, where the valid part is
            no leading part.
        memory: the index of the memory that results share, and of the offset in it; None for a
            memory of its own.
    """
    more = (
        None
        if apart is None and memory is None
        else (*(memory or (-1, 0)), *(apart or ((), (), ())))
    )
    return _PART, place, more, sizes, strides


def view(
    position: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    base: int,
    cut: bool,
) -> Row:
    """Return the row of a view of an argument, with the indices of its offset and of the argument's
    offset.

    ``cut`` is for a detached view.
    """
    return _VIEW, position, (offset, base, cut), sizes, strides


def number(place: int) -> Row:
    """Return the row of a result that is one of the numbers."""
    return _NUMBER, place, None, (), ()


def again(number: int) -> Row:
    """Return the row of a result that is the same object as the earlier result with this number."""
    return _AGAIN, number, None, (), ()


def copied_out(rows: Iterable[Row], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors that results copy as one block, in the order of the results."""
    return [tensors[row[1]] for row in rows if row[0] == _PART and row[2] is None]
