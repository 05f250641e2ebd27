"""A runner that notes what happens to it, for tests without a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from symshape.runtime.runners import choice
from symshape.runtime.runners.choice import Order, Row


class NotedRunner:
    """Runs op by op and counts: runs, and releases."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.runs = 0
        self.releases = 0

    def run(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        self.runs += 1
        return self.order.eager.run(leaves, values)

    def release(self) -> None:
        self.releases += 1

    def describe(self) -> str:
        return f"noted, {self.runs} runs"


@contextmanager
def instead_of(name: str, make: Callable[[Order], Any]) -> Iterator[None]:
    """The table of runners with another row for ``name``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "RUNNERS", {**choice.RUNNERS, name: Row(make)})
        yield


@contextmanager
def noted_runners(name: str = "cudagraph") -> Iterator[list[NotedRunner]]:
    """While it lasts, ``runner=name`` makes runners that note; all that were made, oldest first."""
    made: list[NotedRunner] = []

    def make(order: Order) -> NotedRunner:
        made.append(NotedRunner(order))
        return made[-1]

    with instead_of(name, make):
        yield made
