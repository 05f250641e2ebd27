"""Programs that are neither right nor refused today: each with its outcome and what it would take.  Only to shrink."""

from __future__ import annotations

import attrs


@attrs.frozen
class Known:
    """How a program goes wrong today, and what it would take."""

    outcome: str
    reason: str


INDEX = "a check of the program's that fails when the graph runs raises one class of errors: keep the program's own"

KNOWN: dict[str, Known] = {}

CALLER = "a function that asks who calls it finds symshape there; torch.compile answers so too"

DIFFERENT_BY_DEFAULT: dict[str, Known] = {
    "1-names-and-surroundings-name_of_the_caller": Known("wrong", CALLER),
    "11-messages-and-layouts-check_of_an_index": Known("wrong", INDEX),
}
"""What falls back differs in these from what ``fullgraph=True`` raises: wrong in another way."""
