"""Programs that write outside at their end, and fail before: what the function writes before it fails is written.

The function itself runs then, with its own error, effects and traceback.  That is right as long as the failed run has
changed nothing, which is known from the step that it failed at; random numbers that it drew are drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.calls.floats import without_leaves
from symshape.calls.generator_states import state_of
from symshape.graph.codegen import Run, StepLines
from symshape.graph.dead_code import may_refuse_data
from symshape.graph.program import Program
from symshape.graph.steps import Node, draws_random_numbers, written_values
from symshape.tracing.traced_modes import as_generated


class Failing:
    """What happens where a run of one program fails: wraps what runs it.

    Args:
        program: what runs.
        fn: the function that it was traced from.
    """

    def __init__(self, program: Program, fn: Callable[..., Any]) -> None:
        self._fn = fn
        self._call = program.call
        self._by_caller = program.given is not None or program.call.has_records  # who knows the objects themselves
        self._lines: StepLines = as_generated(program.run).__symshape_steps__  # type: ignore[attr-defined]
        graph = program.graph
        roots = (*(each.value for each in graph.inputs), *(each.value for each in graph.lifted if not each.constant))
        memory = {id(root.storage) for root in roots}
        first: int | None = None
        self._draws: int | None = None
        refuses = True
        generators: list[torch.Generator | None] = []
        for number, step in enumerate(graph.steps):
            if not isinstance(step, Node):
                continue
            written = [value for value in written_values(step) if id(value.storage) in memory]
            if first is None and written:
                first = number
                refuses = len(written) > 1 or not _fails_at_once(step)
            if draws_random_numbers(step):
                self._draws = number if self._draws is None else self._draws
                generators.append(_drawn_from(step))
        self._writes, self._half_written = first, refuses
        later = () if self._draws is None else graph.steps[self._draws :]
        known = {id(each): each for each in generators if each is not None}
        fails_late = None not in generators and any(map(may_refuse_data, later))
        self._generators = tuple(known.values()) if fails_late else ()

    def __call__(self, run: Run) -> Run:
        """What runs the program, and the function itself where that fails and nothing has changed."""
        if self._by_caller:
            return run

        def guarded(leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
            drawn = self.before()
            try:
                return run(leaves, values)
            except Exception as error:
                if self.as_if_not_begun(error, drawn):
                    args, kwargs, _ = without_leaves(self._call.nest(leaves[: self._call.tree.num_leaves]))
                    self._fn(*args, **kwargs)
                raise

        return guarded

    def before(self) -> list[torch.Tensor]:
        """The states of the generators before a run, if it may fail once it has drawn from them."""
        return [state_of(each) for each in self._generators] if self._generators else []

    def as_if_not_begun(self, error: Exception, drawn: Sequence[torch.Tensor]) -> bool:
        """Whether the world is as it was before a run that failed; what it drew is put back."""
        if self._writes is None and self._draws is None:
            return True
        failed = self._lines.failed(error)
        if failed is None or (self._writes is not None and self._has_written(failed)):
            return False
        if self._draws is not None and failed >= self._draws:
            if not drawn:
                return False
            for generator, state in zip(self._generators, drawn, strict=True):
                generator.set_state(state)
        return True

    def _has_written(self, failed: int) -> bool:
        """Whether a run that failed at this step has written; an op that refuses data may do so half way through."""
        assert self._writes is not None
        return failed > self._writes or (failed == self._writes and self._half_written)


_AT_ONCE = frozenset(f"aten::{name}_" for name in ("copy", "fill", "zero", "masked_fill"))
_BY_ZERO = frozenset(f"aten::{name}" for name in ("div", "divide", "floor_divide", "remainder", "fmod"))


def _fails_at_once(node: Node) -> bool:
    """Whether an op that writes does so only when nothing can refuse it any more: not one that meets its data on the
    way, as an index out of range or, among integers, a division by zero.
    """
    name = node.op._schema.name
    by_element = torch.Tag.pointwise in node.op.tags and name.removesuffix("_") not in _BY_ZERO
    return by_element or name in _AT_ONCE


def _drawn_from(node: Node) -> torch.Generator | None:
    """The generator of the CPU that a node draws from; None for those of other devices."""
    given = [each for each in (*node.args, *node.kwargs.values()) if isinstance(each, torch.Generator)]
    tensors = [each for each in (*node.outputs, *node.reads) if each is not None]  # what is written has no output
    found = given[0] if given else torch.default_generator
    on_cpu = bool(tensors) and all(each.spec.device.type == "cpu" for each in tensors)
    return found if on_cpu and found.device.type == "cpu" else None
