"""The true sizes of calls on the host, in memory that a device reads while nobody waits."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

__all__ = ["TrueSizes"]

_ROWS = 64  # calls for which memory is made at a time


class TrueSizes:
    """Writes the sizes that a padded program reads, a row for each call; what was written stays as it is.

    Args:
        places: where they are among the numbers of a call.
        device: which device reads them.

    >>> sizes = TrueSizes((2, 0), torch.device("cpu"))
    >>> first, second = sizes.of((7, 8, 9)), sizes.of((1, 2, 3))
    >>> first.tolist(), second.tolist()
    ([9, 7], [3, 1])
    """

    def __init__(self, places: Sequence[int], device: torch.device) -> None:
        self._places = tuple(places)
        self._pinned = device.type == "cuda" and bool(places)
        self._block = torch.empty(0, dtype=torch.int64)
        self._memory: ctypes.Array[ctypes.c_int64]
        self._used = _ROWS

    def of(self, found: Sequence[int]) -> torch.Tensor:
        """The sizes of a call with these numbers: a tensor of one dimension on the host."""
        if not self._places:
            return self._block
        if self._used == _ROWS:
            self._more()
        row, count = self._used, len(self._places)
        self._used = row + 1
        self._memory[row * count : (row + 1) * count] = [found[place] for place in self._places]
        return self._block[row]

    def _more(self) -> None:
        """Other memory: rows of before are read as long as they are needed."""
        count = len(self._places)
        self._block = torch.empty((_ROWS, count), dtype=torch.int64, pin_memory=self._pinned)
        self._memory = (ctypes.c_int64 * (_ROWS * count)).from_address(self._block.data_ptr())
        self._used = 0
