"""The lifetime of each traced tensor: the last value that was made before the tensor died.

Python keeps a tensor as long as a variable names it, which is longer than it is read. The trace
records when each symbolic tensor dies; the memory that the eager program needs follows from that.
"""

from __future__ import annotations

import weakref
from typing import Any

from symshape.graph.steps import Value


class _Watch(weakref.ref[Any]):
    """A weak reference that knows its tensor's value, and which value was made last."""

    __slots__ = ("last_made", "value")

    value: Value
    last_made: list[int]


def _died(watch: weakref.ref[Any]) -> None:
    assert type(watch) is _Watch
    watch.value.held_until = watch.last_made[0]


class Holding:
    """A recorder of the lifetimes of one trace's tensors."""

    def __init__(self) -> None:
        self._last_made = [0]
        self._watches: list[_Watch] = []

    def watch(self, value: Value, tensor: Any) -> None:
        """Watch a tensor: when it dies, store in ``value`` which value was made last."""
        watch = _Watch(tensor, _died)
        watch.value, watch.last_made = value, self._last_made
        self.made(value)
        self._watches.append(watch)

    def made(self, value: Value) -> None:
        """Record that a value was made: tensors that die from now on died after it."""
        if value.index > self._last_made[0]:
            self._last_made[0] = value.index
