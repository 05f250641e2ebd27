"""How long the program held each of its tensors: until which later one was made.

Python keeps a tensor as long as a variable names it, which is longer than it is read.  What is noted here is when a
symbolic tensor died while the program was traced; the memory of the program as it stands follows from it.
"""

from __future__ import annotations

import weakref
from typing import Any

from symshape.graph.steps import Value


class _Watch(weakref.ref[Any]):
    """A reference that knows its value, and what was made last."""

    __slots__ = ("last_made", "value")

    value: Value
    last_made: list[int]


def _died(watch: weakref.ref[Any]) -> None:
    assert type(watch) is _Watch
    watch.value.held_until = watch.last_made[0]


class Holding:
    """Watches the tensors of one trace."""

    def __init__(self) -> None:
        self._last_made = [0]
        self._watches: list[_Watch] = []

    def watch(self, value: Value, tensor: Any) -> None:
        """From now on: note in ``value`` which value was the last one made when its tensor died."""
        watch = _Watch(tensor, _died)
        watch.value, watch.last_made = value, self._last_made
        self.made(value)
        self._watches.append(watch)

    def made(self, value: Value) -> None:
        """A value was made: what dies from now on died after it."""
        if value.index > self._last_made[0]:
            self._last_made[0] = value.index
