"""``range`` with a symbolic end: a loop over it fixes the number of iterations, not the size
itself.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from symshape.tracing.intercept.python_numbers.operators import is_ours


class SymbolicRange(Sequence[int]):
    """A ``range`` with a symbolic end and a plain step.

    Args:
        start: as in ``range``.
        stop: likewise.
        step: not 0.
    """

    __slots__ = ("start", "step", "stop")

    def __init__(self, start: Any, stop: Any, step: int) -> None:
        self.start, self.stop, self.step = start, stop, step

    def length(self) -> Any:
        """Return the number of items, as a symbolic integer."""
        distance = self.stop - self.start if self.step > 0 else self.start - self.stop
        return torch.sym_max((distance + abs(self.step) - 1) // abs(self.step), 0)

    def __len__(self) -> int:
        return int(self.length())

    def __iter__(self) -> Iterator[Any]:
        return iter([self.start + i * self.step for i in range(len(self))])

    def __reversed__(self) -> Iterator[Any]:
        return iter([self.start + i * self.step for i in reversed(range(len(self)))])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._plain()[index]
        where, length = (
            (index if type(index) is torch.SymInt else operator.index(index)),
            self.length(),
        )
        if where < 0:
            where = where + length
        if where < 0 or where >= length:
            raise IndexError("range object index out of range")
        return self.start + where * self.step

    def __contains__(self, item: Any) -> bool:
        if type(item) not in (int, torch.SymInt):
            return item in self._plain()
        low, high = (self.start, item) if self.step > 0 else (item, self.start)
        ended = item >= self.stop if self.step > 0 else item <= self.stop
        return not (low > high) and not ended and bool((high - low) % abs(self.step) == 0)

    def __bool__(self) -> bool:
        return bool(self.length() > 0)

    def _plain(self) -> range:
        return range(int(self.start), int(self.stop), self.step)

    def __eq__(self, other: object) -> bool:
        return self._plain() == (other._plain() if isinstance(other, SymbolicRange) else other)

    def __hash__(self) -> int:
        return hash(self._plain())

    def __repr__(self) -> str:
        return repr(self._plain())

    def index(self, value: Any, *limits: Any) -> int:
        """Return the position of a number."""
        return self._plain().index(value, *limits)

    def count(self, value: Any) -> int:
        """Return how often a number occurs in the range."""
        return self._plain().count(value)


def plain_range(*args: Any) -> Any:
    """Compute ``range``, either end of which may be symbolic.

    >>> plain_range(1, 6, 2)
    range(1, 6, 2)
    """
    start, stop, step = (
        (0, *args, 1) if len(args) == 1 else (*args, 1)[:3] if len(args) in (2, 3) else (None,) * 3
    )
    ends = (start, stop)
    symbolic = any(
        type(each) is torch.SymInt and is_ours(each) and each.node.has_hint() for each in ends
    )
    if (
        not symbolic
        or type(step) is not int
        or step == 0
        or any(type(e) not in (int, torch.SymInt) for e in ends)
    ):
        return range(*args)
    return SymbolicRange(start, stop, step)
