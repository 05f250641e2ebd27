"""An entry as verifying needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from symshape.graph.program import Program


class Served(Protocol):
    """An entry as verifying needs it."""

    @property
    def number(self) -> int:
        """Which entry it is."""

    @property
    def program(self) -> Program:
        """What was traced."""

    @property
    def runner_name(self) -> str:
        """What runs it."""

    def build(self, outputs: list[Any], /) -> Any:
        """From flat outputs to the program's own structure."""

    def run(self, leaves: Sequence[Any], values: Sequence[int], /) -> list[Any]:
        """The flat outputs."""

    def refused_data(self, error: Exception | None, /) -> bool:
        """Whether an op of the program raised this error because of what its tensors hold."""
