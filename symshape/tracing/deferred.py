"""Questions that matter only if somebody looks: whether ``reshape`` copied or made a view.

Eager's ``reshape`` of a tensor that does not lie densely in memory copies, unless sizes of 0 or 1 happen to allow a
view.  The values are the same.  So the question is asked at the end of the trace, and only where the difference can be
seen: the result leaves the program, or one of the two is written to later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import attrs

from symshape.errors import DataDependentError
from symshape.tracing.graph import Node, Step, Value, values_in, written_values
from symshape.tracing.origins import Location, at


@attrs.frozen(eq=False)
class Copied:
    """One copy that could have been a view: at which step, of what, into what, and how to ask."""

    step: int
    source: Value
    copy: Value
    ask: Callable[[], object]
    location: Location | None


def settle(copies: Sequence[Copied], steps: Sequence[Step], outputs: Any) -> None:
    """Asks where the answer can be seen; the answers become guards."""
    if not copies:
        return
    shown = {id(value.storage) for value in values_in(outputs)}
    written = [
        (position, id(value.storage))
        for position, step in enumerate(steps)
        if isinstance(step, Node) and step.op._schema.is_mutable
        for value in written_values(step)
    ]
    for each in copies:
        either = {id(each.source.storage), id(each.copy.storage)}
        if id(each.copy.storage) in shown or any(place >= each.step and which in either for place, which in written):
            # A question about sizes that are known only at run time stays open: the copy stays a copy.
            with at(each.location), suppress(DataDependentError):
                each.ask()
