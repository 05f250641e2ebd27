"""The runner that executes a program op by op, on which every other runner falls back."""

from __future__ import annotations

from symshape.forks import cached_property
from symshape.graph.codegen import Run, compiled
from symshape.graph.program import Program


class EagerRunner:
    """A runner that executes a program op by op through its generated code.

    Attributes:
        fallback: the same as ``run`` for runners that seldom need it: the code is compiled when it
            is first called.
        instead: the runner that was asked for and cannot serve the program, and why; else empty.
    """

    def __init__(self, program: Program) -> None:
        self.fallback = program.run
        self.instead = ""

    @cached_property
    def run(self) -> Run:
        """The program's generated function."""
        return compiled(self.fallback)

    def release(self) -> None:
        """Do nothing: this runner holds nothing."""

    def describe(self) -> str:
        """Return the runner's name, and why it serves if another runner was asked for."""
        return f"eager, not {self.instead}" if self.instead else "eager"
