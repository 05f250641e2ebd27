"""Programs that are neither right nor refused today: each with its outcome and what it would take.
Only to shrink.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Known:
    """How a program goes wrong today, and what it would take."""

    outcome: str
    reason: str


LARGE = (
    "what is written in place is copied before a run only while it is small: a copy of "
    "everything costs each call"
)
COUNTS = (
    "the calls of a memo that a graph does not make, and those that a trace makes, are in "
    "its counts"
)
WEAKLY = (
    "a program keeps the parameters that it reads; to refuse weak references to them would "
    "refuse recurrent layers"
)
ITS_CLASS = (
    "C asks for the class of torch's number; a __class__ of ours would be what torch's "
    "own code sees, too"
)

KNOWN: dict[str, Known] = {
    "14-failures-and-memos-error_after_a_large_write_in_place": Known("wrong", LARGE),
    "14-failures-and-memos-memo_that_counts_its_answers": Known("wrong", COUNTS),
    "13-unseen-reads-weak_reference_to_a_parameter": Known("wrong", WEAKLY),
    "5-stand-ins-size_given_to_a_method_of_float": Known("wrong", ITS_CLASS),
}

CALLER = "a function that asks who calls it finds symshape there; torch.compile answers so too"

DIFFERENT_BY_DEFAULT: dict[str, Known] = {
    "1-names-and-surroundings-name_of_the_caller": Known("wrong", CALLER)
}
"""What falls back differs in these from what ``fullgraph=True`` raises: wrong in another way."""
