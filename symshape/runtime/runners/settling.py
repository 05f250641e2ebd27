"""Runs a program op by op until it is worth preparing it once more: its parameters were exchanged a moment ago.

What is captured or padded holds the parameters' very memory.  A function whose parameters are exchanged at each call
would capture at each call; one whose parameters were exchanged once captures once more, some calls later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from symshape import forks
from symshape.runtime.runners.protocol import Runner

SETTLED = 16
"""Calls with the same parameters after which these are taken to stay."""


class SettlingRunner:
    """Runs a program op by op for some calls, and then has another runner made, which serves from then on.

    Args:
        eager: runs it op by op.
        name: the runner that will be made.
        settled: makes that runner and puts it in this one's place; called once.
    """

    def __init__(self, eager: Runner, name: str, settled: Callable[[], Runner]) -> None:
        self._eager, self._name = eager, name
        self._settled: Callable[[], Runner] | None = settled
        self._left = SETTLED
        self._lock = forks.lock()

    def run(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """The flat outputs of one call."""
        self._left -= 1
        if self._left <= 0:
            with self._lock:
                settled, self._settled = self._settled, None
            if settled is not None:
                return settled().run(leaves, values)
        return self._eager.run(leaves, values)

    def release(self) -> None:
        """Prepares nothing any more."""
        with self._lock:
            self._settled = None

    def describe(self) -> str:
        """What will serve."""
        return f"eager, {self._name} again once its parameters stay"
