"""What a runner is: it executes one program, says what it is, and lets go of what it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from symshape.runtime.pieces.faults import Left


class Unfit(Exception):
    """A program that a runner cannot serve, and why."""


Cut = Callable[[Left], "Runner | None"]
"""Makes a runner that records a program in pieces around what is left out; None where there is nothing to gain."""


class Runner(Protocol):
    """Executes one program.  Raises ``Unfit`` when it is made for a program that it cannot serve."""

    def run(self, leaves: Sequence[Any], values: Sequence[int], /) -> list[Any]:
        """The flat outputs of one call.  Called by several threads at once, and by a late one even after a release."""

    def release(self) -> None:
        """Lets go of what it holds (compiled code, device memory) and makes no more: late calls run op by op."""

    def describe(self) -> str:
        """What it is and holds, in a few words."""
