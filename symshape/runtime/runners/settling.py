"""A runner for a program whose parameters were just replaced: op by op until another preparation
pays.

A captured or padded program holds the addresses of its parameters.  A function whose parameters are
replaced at each call would capture at each call; one whose parameters were replaced once captures
once more, some calls later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from symshape import forks
from symshape.runtime.runners.protocol import Runner

SETTLED = 16
"""The number of calls with the same parameters after which the parameters are taken to stay."""


class SettlingRunner:
    """A runner that executes some calls op by op, and then has another runner made, which serves
    from then on.

    Args:
        eager: runs the program op by op.
        name: the name of the runner that will be made.
        settled: makes that runner and puts it in this one's place; called once.
    """

    def __init__(self, eager: Runner, name: str, settled: Callable[[], Runner]) -> None:
        self._eager, self._name = eager, name
        self._settled: Callable[[], Runner] | None = settled
        self._left = SETTLED
        self._lock = forks.lock()

    def run(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """Return the flat outputs of one call."""
        self._left -= 1
        if self._left <= 0:
            with self._lock:
                settled, self._settled = self._settled, None
            if settled is not None:
                return settled().run(leaves, values)
        return self._eager.run(leaves, values)

    def release(self) -> None:
        """Cancel the making of the other runner."""
        with self._lock:
            self._settled = None

    def describe(self) -> str:
        """Return which runner will serve, and when."""
        return f"eager, {self._name} again once its parameters stay"
