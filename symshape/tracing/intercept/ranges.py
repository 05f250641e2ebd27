"""``range`` over sizes: how many numbers there are is asked, not what the ends are.

``for start in range(0, n, 128)`` goes once for all sizes up to 128; Python's own ``range`` takes plain numbers alone,
which would fix ``n``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import torch

_range = range


class SymbolicRange(Sequence[Any]):
    """A ``range`` whose start or stop is symbolic, of a known number of numbers."""

    def __init__(self, start: Any, stop: Any, step: int, count: int) -> None:
        self.start, self.stop, self.step = start, stop, step
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return (self.start + i * self.step for i in _range(self._count))

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self.start + _range(self._count)[index] * self.step
        places, step = _range(self._count)[index], self.step
        return SymbolicRange(
            self.start + places.start * step, self.start + places.stop * step, places.step * step, len(places)
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (range, SymbolicRange)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(_range(int(self.start), int(self.start) + self._count * self.step, self.step))

    def __repr__(self) -> str:
        return repr(_range(int(self.start), int(self.stop), self.step))


def plain_range(*args: Any) -> Any:
    """``range``, of which the ends may be symbolic.

    >>> plain_range(3), list(plain_range(1, 6, 2))
    (range(0, 3), [1, 3, 5])
    """
    step = args[2] if len(args) == 3 else 1
    if type(step) is not int or step == 0 or not any(type(each) is torch.SymInt for each in args):
        return _range(*args)
    start, stop = (0, args[0]) if len(args) == 1 else args[:2]
    if abs(step) == 1 and type(start) is int:  # as many as the size says
        return _range(*args)
    if any(type(each) is not int and type(each) is not torch.SymInt for each in (start, stop)):
        return _range(*args)
    span = stop - start if step > 0 else start - stop
    count = int((span + abs(step) - 1) // abs(step)) if span > 0 else 0
    return SymbolicRange(start, stop, step, count)
