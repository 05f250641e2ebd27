"""How what runs a program tells what happens to it: to the history of the compiled function, or to nobody."""

from __future__ import annotations

from typing import Any, Protocol


class Note(Protocol):
    """Tells a history of something that happened to one entry; kinds are those of ``runtime.history.Moment``."""

    def __call__(
        self,
        kind: str,
        *,
        values: tuple[int, ...] = ...,
        sizes: str = ...,
        text: str = ...,
        milliseconds: float | None = ...,
    ) -> None:
        """It happened now."""


def silent(kind: str, **_: Any) -> None:
    """A note that nobody reads."""
