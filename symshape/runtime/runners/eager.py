"""Runs a program op by op: what every other runner falls back to."""

from __future__ import annotations

from symshape.graph.program import Program


class EagerRunner:
    """Runs a program op by op through its generated code.

    Attributes:
        run: the program's own runner.
        instead: which runner was asked for and cannot serve the program, and why; empty where none was.
    """

    def __init__(self, program: Program) -> None:
        self.run = program.run
        self.instead = ""

    def release(self) -> None:
        """Nothing is held."""

    def describe(self) -> str:
        """Its name, and why it serves where another one was asked for."""
        return f"eager, not {self.instead}" if self.instead else "eager"
