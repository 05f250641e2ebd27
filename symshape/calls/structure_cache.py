"""Structures of flat calls, cached by their exact keys: a call with new sizes need not be read a second time."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

from symshape.calls.arguments import EQUAL

__all__ = ["StructureCache", "without_integers"]

_MOST = 1024
_DTYPE = 1 + EQUAL.index("dtype")


class StructureCache:
    """A cache of the structures of calls that were read.

    Attributes:
        known: they, by the exact keys of the calls without the integers.
    """

    def __init__(self) -> None:
        self.known: dict[Hashable, Hashable] = {}

    def learn(self, key: Any, structure: Hashable, values: tuple[int, ...]) -> None:
        """Record how a call with this key was read."""
        split = without_integers(key)
        if split is not None and split[1] == values:
            if len(self.known) >= _MOST:
                self.known.clear()
            self.known[split[0]] = structure

    def clear(self) -> None:
        """Forget all structures."""
        self.known.clear()


def without_integers(key: Any) -> tuple[Hashable, tuple[int, ...]] | None:
    """Split the exact key of a flat call into a key without integers, and the integers.

    None if the integers are not all that is read of the call. Calls whose keys without integers are equal have equal
    structures.

    >>> from symshape.calls.call_key import FLAT
    >>> calls = (torch.ones(2, 3), 4), (torch.ones(5, 6), 7), (torch.ones(3, 2).T, 4), (torch.ones(1, 3), 4)
    >>> first, second, transposed, one = [without_integers(FLAT.makers[2](call, {})) for call in calls]
    >>> first[1], second[1], first[0] == second[0], transposed, one
    ((2, 3, 4), (5, 6, 7), True, None, None)
    """
    if type(key[0]) is bytes:  # made by C++
        return (key[0] if len(key) == 2 else (key[0], *key[2:])), key[1]
    parts = key[0] if type(key[0]) is tuple else key  # the names of keyword arguments come after
    rest: list[Any] = []
    values: list[int] = []
    for part in parts[1:]:
        first = part[0]
        if type(first) is torch.Size:
            if part[-1] is not True or part[_DTYPE].is_complex:
                return None  # strides, or a size of 1 or 0, are not read as sizes alone; a key hides a lazy conjugate
            values += first
            rest.append((len(first), part[1:]))
        elif first is int:
            values.append(part[1])
            rest.append(int)
        elif first is torch.nn.Parameter:
            return None
        else:
            rest.append(part)
    return (parts[0], tuple(rest), key[1:] if parts is not key else ()), tuple(values)
