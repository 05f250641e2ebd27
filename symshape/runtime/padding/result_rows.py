"""What becomes of each result of a graph that is replayed, as rows that C++ reads (``runners/compiled_launch.cpp``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

__all__ = ["Row", "again", "clone", "copied_out", "known", "leaf", "part"]

Row = tuple[int, int, Any, tuple[int, ...], tuple[int, ...]]
"""The kind, by the number that it has there; a place; an object; places of sizes and of strides among the numbers."""

_KNOWN, _LEAF, _CLONE, _PART, _AGAIN = range(5)


def known(result: Any) -> Row:
    """The same object in every call: a number, a parameter."""
    return _KNOWN, 0, result, (), ()


def leaf(position: int) -> Row:
    """An argument itself."""
    return _LEAF, position, None, (), ()


def clone(tensor: torch.Tensor) -> Row:
    """A copy of a tensor that a replay writes, with its sizes and strides."""
    return _CLONE, 0, tensor, (), ()


def part(place: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Row:
    """A copy, of these strides, of the first part, of these sizes, of a tensor that a replay answers."""
    return _PART, place, None, sizes, strides


def again(number: int) -> Row:
    """The very result with a lower number."""
    return _AGAIN, number, None, (), ()


def copied_out(rows: Iterable[Row], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What results are copied from, of the tensors that a replay answers: each once for each result."""
    return [tensors[row[1]] for row in rows if row[0] == _PART]
