"""Statements that the fuzzer ``world`` makes programs of."""

from __future__ import annotations

import attrs


@attrs.frozen
class Line:
    """A statement: its source, and the things that it needs."""

    text: str
    needs: tuple[str, ...] = ()

    @property
    def tag(self) -> str:
        """One line that names it."""
        return " ".join(self.text.split())


def lines(needs: str, *texts: str) -> tuple[Line, ...]:
    """Statements that need the same things."""
    return tuple(Line(text, tuple(needs.split())) for text in texts)
