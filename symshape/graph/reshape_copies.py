"""Questions that matter only if somebody looks: whether ``reshape`` copied or made a view.

Eager's ``reshape`` of a tensor that does not lie densely in memory copies, unless sizes of 0 or 1 (or sizes that happen
to be equal) allow a view.  The values are the same.  So the question is asked at the end of the trace, and only where
the difference can be seen: the result leaves the program, one of the two is written to later, or the program reads how
it lies in memory.  Where nothing but a result that is laid out like it leaves the program (as ``x + 1`` lies like
``x``), nobody needs to know beforehand: the graph calls ``reshape`` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import attrs
import torch

from symshape.errors import DataDependentError
from symshape.graph.steps import Node, Step, Value, values_in, written_values
from symshape.user_code import Location, at

_aten = torch.ops.aten


@attrs.frozen(eq=False)
class Copied:
    """One copy that could have been a view: at which step, of what, into what, and how to ask."""

    step: int
    source: Value
    copy: Value
    ask: Callable[[], object]
    location: Location | None


_LAYS_OUT_AFRESH = frozenset(
    f"aten::{name}"
    for name in (
        *("mm", "addmm", "bmm", "baddbmm", "_addmm_activation", "embedding", "index_select", "gather", "one_hot"),
        *("native_layer_norm", "_scaled_dot_product_flash_attention_for_cpu", "tril_indices", "triu_indices"),
    )
)
"""Ops whose results are contiguous, however their arguments lie in memory."""


def settle(copies: Sequence[Copied], steps: list[Step], outputs: Any, looked_at: Collection[Value] = ()) -> None:
    """Asks where the answer can be seen; the answers become guards.  Where only strides can be, ``steps`` change.

    ``looked_at`` are the values of which the program read how they lie in memory.
    """
    if not copies:
        return
    results = set(values_in(outputs))
    shown = {id(value.storage) for value in results}
    written = [
        (position, id(value.storage))
        for position, step in enumerate(steps)
        if isinstance(step, Node) and step.op._schema.is_mutable
        for value in written_values(step)
    ]
    for each in copies:
        either = {id(each.source.storage), id(each.copy.storage)}
        alike = _laid_out_like(each, steps)
        if (
            id(each.copy.storage) in shown
            or not alike.isdisjoint(looked_at)
            or any(place >= each.step and which in either for place, which in written)
        ):
            # A question about sizes that are known only at run time stays open: the copy stays a copy.
            with at(each.location), suppress(DataDependentError):
                each.ask()
        elif not alike.isdisjoint(results):
            _reshape(each, steps)


def _reshape(copied: Copied, steps: list[Step]) -> None:
    """Makes the graph call ``reshape`` for the view of the copy (which is dead code then)."""
    for position in range(copied.step - 1, -1, -1):
        step = steps[position]
        if isinstance(step, Node) and copied.copy in step.outputs:
            steps[position] = attrs.evolve(step, op=_aten.reshape.default, args=(copied.source, *step.args[1:]))
            return


def _laid_out_like(copied: Copied, steps: Sequence[Step]) -> set[Value]:
    """The copy and all values whose strides may follow from its strides."""
    found = {copied.copy}
    for step in steps[copied.step :]:
        if not isinstance(step, Node) or step.op._schema.name in _LAYS_OUT_AFRESH:
            continue
        if not found.isdisjoint(values_in(step.args)) or not found.isdisjoint(values_in(step.kwargs)):
            found.update(value for value in step.outputs if value is not None and len(value.spec.sizes) > 1)
    return found
