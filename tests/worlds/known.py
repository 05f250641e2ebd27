"""Programs that are neither right nor refused today: each with its outcome and what it would take.  Only to shrink."""

from __future__ import annotations

import attrs


@attrs.frozen
class Known:
    """How a program goes wrong today, and what it would take."""

    outcome: str
    reason: str


KNOWN: dict[str, Known] = {}

CALLER = "a function that asks who calls it finds symshape there; torch.compile answers so too"

DIFFERENT_BY_DEFAULT: dict[str, Known] = {
    "1-names-and-surroundings-name_of_the_caller": Known("wrong", CALLER),
}
"""What falls back differs in these from what ``fullgraph=True`` raises: wrong in another way."""
