"""Runs a program op by op: what every other runner falls back to."""

from __future__ import annotations

from symshape.graph.program import Program


class EagerRunner:
    """Runs a program op by op through its generated code.

    Attributes:
        run: the program's own runner.
    """

    def __init__(self, program: Program) -> None:
        self.run = program.run

    def release(self) -> None:
        """Nothing is held."""

    def describe(self) -> str:
        """It has nothing to tell but its name."""
        return "eager"
