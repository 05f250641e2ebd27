"""What becomes of each result of a graph that is replayed, as rows that C++ reads (``runners/compiled_launch.cpp``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

__all__ = ["Apart", "Row", "again", "clone", "copied_out", "known", "leaf", "number", "part", "view"]

Row = tuple[int, int, Any, tuple[int, ...], tuple[int, ...]]
"""The kind, by the number that it has there; a place; an object; places of sizes and of strides among the numbers."""

Apart = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Dimensions that are made of several sizes: the places of all of these among the numbers, their capacities, and how
many there are in each dimension."""

_KNOWN, _LEAF, _CLONE, _PART, _AGAIN, _VIEW, _NUMBER = range(7)


def known(result: Any) -> Row:
    """The same object in every call: a number, a parameter."""
    return _KNOWN, 0, result, (), ()


def leaf(position: int) -> Row:
    """An argument itself."""
    return _LEAF, position, None, (), ()


def clone(tensor: torch.Tensor) -> Row:
    """A copy of a tensor that a replay writes, with its sizes and strides."""
    return _CLONE, 0, tensor, (), ()


def part(
    place: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    apart: Apart | None = None,
    memory: tuple[int, int] | None = None,
) -> Row:
    """A copy, of these strides, of the first part, of these sizes, of a tensor that a replay answers.

    Args:
        place: which tensor.
        sizes: places among the numbers.
        strides: likewise.
        apart: where the valid part is no first part since dimensions are made of several sizes.
        memory: which of the memories that results share, and the place of the offset in it; None for one of its own.
    """
    more = None if apart is None and memory is None else (*(memory or (-1, 0)), *(apart or ((), (), ())))
    return _PART, place, more, sizes, strides


def view(position: int, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int, base: int, cut: bool) -> Row:
    """A view of an argument: the places of its offset among the numbers, and of what that counts from.

    ``cut`` is for one that was detached.
    """
    return _VIEW, position, (offset, base, cut), sizes, strides


def number(place: int) -> Row:
    """One of the numbers."""
    return _NUMBER, place, None, (), ()


def again(number: int) -> Row:
    """The very result with a lower number."""
    return _AGAIN, number, None, (), ()


def copied_out(rows: Iterable[Row], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What results are copied from as one block, of the tensors that a replay answers: each once for each result."""
    return [tensors[row[1]] for row in rows if row[0] == _PART and row[2] is None]
