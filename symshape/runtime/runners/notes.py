"""The callbacks by which runners record events in the history of their compiled function, or drop
them.
"""

from __future__ import annotations

from typing import Any, Protocol


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
