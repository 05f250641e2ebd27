"""Copies by ``reshape``, ``contiguous`` and sums of gradients: whether one was made is asked only
where the difference can be seen.

Eager's ``reshape`` of a tensor that is not dense in memory copies, unless sizes of 0 or 1 (or sizes
that happen to be equal) allow a view. ``contiguous`` likewise returns the tensor itself (this is
for integers only), and so does autograd where it would sum a gradient over a size that is 1. The
values are the same. So the question is asked at the end of the trace, and only in these cases: the
result is returned, one of the two is written to later, or the program reads its strides or finds
out in another way which of them is one tensor. If only a result with the same layout is returned
(as ``x + 1`` has the layout of ``x``), a ``reshape`` needs no answer: the graph calls ``reshape``
itself, unless it makes views that depend on the strides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import attrs
import torch

from meta_fns.core.view_strides import view_strides, view_strides_asking
from symshape.errors import DataDependentError, Reason, UnsupportedError
from symshape.graph.steps import Node, Step, Value, values_in, writes_nothing, written_values
from symshape.user_code import Location, at

_aten = torch.ops.aten


@attrs.frozen(eq=False)
class ReshapeCopy:
    """A copy that could have been a view, or the tensor itself.

    Attributes:
        step: the number of steps before it.
        source: what is copied.
        copy: the result.
        ask: returns None if eager copies here too; the answer becomes a guard.  Only a ``reshape``
            may leave it open.
        location: the user's line.
        by: what made it: ``reshape``, ``contiguous`` or ``sum``.
    """

    step: int
    source: Value
    copy: Value
    ask: Callable[[], object]
    location: Location | None
    by: str = "reshape"


def copied_by_reshape(
    steps: Sequence[Step], view: Value, location: Location | None
) -> list[ReshapeCopy]:
    """Return the copy that ``reshape`` made with the last two steps: a contiguous clone, and
    ``view`` of it.

    Return nothing if the last steps are others, or the program itself asked for the clone: a view
    would have been possible.
    """
    last, before = steps[-1], steps[-2] if len(steps) > 1 else None
    if not isinstance(before, Node) or not isinstance(last, Node) or not _copies_densely(before):
        return []
    if view not in last.outputs or last.args[0] is not before.outputs[0]:
        return []
    source = before.args[0]
    changes = (
        step.leaves[1]
        for step in reversed(steps)
        if isinstance(step, Node) and step.leaves is not None and step.leaves[0] is source
    )
    spec = next(changes, source.spec)
    if view_strides(spec.sizes, spec.strides, view.spec.sizes) is not None:
        return []
    question = partial(view_strides_asking, spec.sizes, spec.strides, view.spec.sizes)
    return [ReshapeCopy(len(steps), source, view, question, location)]


CONTIGUOUS_RESULTS = frozenset(
    f"aten::{name}"
    for name in (
        *(
            "mm",
            "addmm",
            "bmm",
            "baddbmm",
            "_addmm_activation",
            "embedding",
            "index_select",
            "gather",
            "one_hot",
        ),
        "embedding_dense_backward",
        *(
            "native_layer_norm",
            "_scaled_dot_product_flash_attention_for_cpu",
            "tril_indices",
            "triu_indices",
        ),
        *("sum", "nansum", "prod", "mean", "var", "std", "var_mean", "std_mean"),
        *("amax", "amin", "argmax", "argmin", "all", "any", "logsumexp", "linalg_vector_norm"),
    )
)
"""Ops whose results are contiguous for any layout of their arguments."""
_STRIDE_DEPENDENT = frozenset(
    f"aten::{name}"
    for name in ("view", "_unsafe_view", "_reshape_alias", "as_strided", "view_as_complex")
)
"""Ops whose effect, or success, depends on the strides of their argument."""


def settle(
    copies: Sequence[ReshapeCopy],
    steps: list[Step],
    outputs: Any,
    looked_at: Collection[Value] = (),
    given: Collection[Value] = (),
) -> None:
    """Ask where the answer can be seen; the answers become guards. Where only strides can be seen,
    change ``steps``.

    Args:
        copies: those that were made in this call.
        steps: of the trace.
        outputs: what leaves the program.
        looked_at: the values of which the program read how they lie in memory, or whose identity it
            knows.
        given: the values of arguments, parameters and buffers.  Any two of them may share memory in
            a later call, so a write to one counts as a write to all.
    """
    if not copies:
        return
    results = set(values_in(outputs))
    shown = {id(value.storage) for value in results}
    outside = frozenset(id(value.storage) for value in given)
    written: dict[int, int] = {}  # by memory (see ``_memory``), the last step that writes to it
    for position, step in enumerate(steps):
        if isinstance(step, Node) and not writes_nothing(step):
            written.update((_memory(value, outside), position) for value in written_values(step))
    seen, returned = _laying_out(looked_at, steps), _laying_out(results, steps)
    viewed: set[Value] | None = None
    for each in copies:
        either = (_memory(each.source, outside), _memory(each.copy, outside))
        if (
            id(each.copy.storage) in shown
            or each.copy in seen
            or any(written.get(which, -1) >= each.step for which in either)
        ):
            # A question about sizes that are known only at run time stays open: the copy stays a
            # copy.
            through = _written_through(each, steps, shown, outside)
            with at(each.location), suppress(*(() if through else (DataDependentError,))):
                if each.ask() is not None and through:
                    raise UnsupportedError(
                        "reshape returns a view or a copy here, depending on sizes that are known "
                        "only at run time; its result or its argument is written to in place; call "
                        "contiguous() or clone() before reshape",
                        reason=Reason.MEMORY,
                    )
        elif each.copy in returned:
            viewed = (
                _laying_out(_viewed(steps), steps, also=_copies_densely)
                if viewed is None
                else viewed
            )
            if each.copy in viewed or each.by != "reshape":
                with at(each.location), suppress(DataDependentError):
                    each.ask()
            else:
                _reshape(each, steps)


def _memory(value: Value, outside: Collection[int]) -> int:
    """Return a name for the memory of a value, the same for all memory that was there before the
    call (0).
    """
    storage = id(value.storage)
    return 0 if storage in outside else storage


def _written_through(
    copied: ReshapeCopy, steps: Sequence[Step], shown: Collection[int], outside: Collection[int]
) -> bool:
    """Return whether the source or the copy is written to, and the other one is read later or is
    visible outside.
    """
    made = {
        id(value.storage)
        for step in steps
        if isinstance(step, Node)
        for value in step.outputs
        if value
    }
    behind = [step for step in steps[copied.step :] if isinstance(step, Node)]
    for one, other in ((copied.source, copied.copy), (copied.copy, copied.source)):
        mine, others = _memory(one, outside), _memory(other, outside)
        writes = (
            i
            for i, step in enumerate(behind)
            for v in written_values(step)
            if _memory(v, outside) == mine
        )
        first = next(writes, None)
        if first is not None:
            if id(other.storage) in shown or id(other.storage) not in made:
                return True
            if any(
                _memory(value, outside) == others for step in behind[first:] for value in step.reads
            ):
                return True
    return False


def _reshape(copied: ReshapeCopy, steps: list[Step]) -> None:
    """Replace the view of the copy by a call of ``reshape``; the copy is dead code then."""
    for position in range(copied.step - 1, -1, -1):
        step = steps[position]
        if isinstance(step, Node) and copied.copy in step.outputs:
            steps[position] = attrs.evolve(
                step, op=_aten.reshape.default, args=(copied.source, *step.args[1:])
            )
            return


def _viewed(steps: Sequence[Step]) -> set[Value]:
    """Return the values of which the program makes views that depend on their strides."""
    return {
        value
        for step in steps
        if isinstance(step, Node) and step.op._schema.name in _STRIDE_DEPENDENT
        for value in step.reads
    }


def _copies_densely(node: Node) -> bool:
    """Return whether a node is a contiguous clone: its result allows views, as a copy and as a
    ``reshape``.
    """
    return (
        node.op is _aten.clone.default
        and node.kwargs.get("memory_format") is torch.contiguous_format
    )


def _laying_out(
    values: Collection[Value],
    steps: Sequence[Step],
    also: Callable[[Node], bool] = lambda node: False,
) -> set[Value]:
    """Return the values, and all values whose strides theirs may follow from: one walk from the
    end.

    ``also`` names further steps whose results do not depend on their arguments' strides.
    """
    found = set(values)
    for step in reversed(steps) if found else ():
        if (
            isinstance(step, Node)
            and step.op._schema.name not in CONTIGUOUS_RESULTS
            and not also(step)
        ):
            for value in step.outputs:
                if value in found and len(value.spec.sizes) > 1:
                    found.update(step.reads)
                    break
    return found
