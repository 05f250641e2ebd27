"""The answer of :func:`guards.decide`."""

from __future__ import annotations

from html import escape

import attrs


@attrs.frozen
class Verdict:
    """The verdict on a condition: its value, and how it was found.

    Attributes:
        value: True: it holds for all values that the facts allow; False: for none; None: it
            depends, or nobody knows.
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

    def _repr_html_(self) -> str:
        """A line for a notebook: the answer, how it was found, and values where it depends.

        >>> Verdict(None, "search", {"n": 3}, {"n": 8}, "it depends on the values")._repr_html_()
        '<p><b>it depends on the values</b> (search); fails at <code>n = 3</code>; holds at
        <code>n = 8</code></p>'
        """
        answer = (
            "always"
            if self.value
            else "never"
            if self.value is False
            else self.reason or "not known"
        )
        told = [f"<b>{escape(answer)}</b> ({escape(self.rung)})"]
        for word, values in (("fails", self.fails), ("holds", self.holds)):
            if values:
                point = ", ".join(f"{name} = {value}" for name, value in values.items())
                told.append(f"{word} at <code>{escape(point)}</code>")
        return f"<p>{'; '.join(told)}</p>"
