"""The protocol of an entry for verification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from symshape.graph.program import Program


class Served(Protocol):
    """An entry, as verification uses it."""

    @property
    def number(self) -> int:
        """The entry's number in the cache."""

    @property
    def program(self) -> Program:
        """The traced program."""

    @property
    def runner_name(self) -> str:
        """The name of the entry's runner."""

    def build(self, outputs: list[Any], /) -> Any:
        """Return the program's result structure, built from its flat outputs."""

    def run(self, leaves: Sequence[Any], values: Sequence[int], /) -> list[Any]:
        """Run the program and return its flat outputs."""

    def refused_data(self, error: Exception | None, /) -> bool:
        """Return whether an op of the program raised this error because of the values in its tensors."""
