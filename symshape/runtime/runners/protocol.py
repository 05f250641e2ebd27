"""The protocol of runners: a runner executes one program, describes itself, and releases what it
holds.  It records events by a callback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from symshape.runtime.pieces.faults import Left


class Unfit(Exception):
    """Raised for a program that a runner cannot serve, with the reason."""


Cut = Callable[["Left"], "Runner | None"]
"""Makes a runner that records a program in pieces around the given ops; returns None if nothing is
gained.
"""


class Runner(Protocol):
    """A runner executes one program.  Its constructor raises ``Unfit`` for a program that it cannot
    serve.
    """

    def run(self, leaves: Sequence[Any], values: Sequence[int], /) -> list[Any]:
        """Return the flat outputs of one call.  Several threads may call it at once, and even after
        a release.
        """

    def release(self) -> None:
        """Release compiled code and device memory, and make no more: late calls run op by op."""

    def describe(self) -> str:
        """Return the runner's name and what it holds, in a few words."""


class Note(Protocol):
    """A callback that records an event of one entry; the kinds are those of
    ``runtime.history.Moment``.
    """

    def __call__(
        self,
        kind: str,
        *,
        values: tuple[int, ...] = ...,
        sizes: str = ...,
        text: str = ...,
        milliseconds: float | None = ...,
    ) -> None:
        """Record an event that happens now."""


def silent(kind: str, **_: Any) -> None:
    """Drop an event."""
