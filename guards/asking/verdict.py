"""What :func:`guards.decide` answers."""

from __future__ import annotations

import attrs


@attrs.frozen
class Verdict:
    """What was found out about a condition.

    Attributes:
        value: True: it holds for all values that the facts allow; False: for none; None: it depends, or nobody knows.
        rung: the step of the ladder that settled it.
        fails: values at which it does not hold, by name (only where the value is None).
        holds: values at which it holds (only where the value is None).
        reason: a sentence.
    """

    value: bool | None
    rung: str
    fails: dict[str, int] | None = None
    holds: dict[str, int] | None = None
    reason: str = ""

    @property
    def model(self) -> dict[str, int] | None:
        """Values at which the condition fails, or, where none are known, at which it holds."""
        return self.fails if self.fails is not None else self.holds
