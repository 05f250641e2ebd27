"""States of random generators that a checkpoint saves, to draw the same numbers when it recomputes.

During a trace nothing is drawn, so there is no state to save. The graph saves and restores the
states itself, in the same places, if numbers are drawn in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns import TensorSpec
from symshape.calls.generator_states import state_of
from symshape.errors import Reason, UnsupportedError
from symshape.graph.opaque_calls import LiveCall
from symshape.graph.steps import Node, Step, Value, draws_random_numbers
from symshape.torch_internals import pytree
from symshape.tracing.intercept.torch_functions.random_state import address
from symshape.tracing.trace_state import TraceState
from symshape.user_code import user_location


class _Keep(LiveCall):
    """An op that reads the state of a generator, or restores a state."""

    def __init__(self, generator: torch.Generator, *, back: bool) -> None:
        tree = pytree.tree_structure(((0,) if back else (), {}))
        target: Any = generator.set_state if back else lambda: state_of(generator)
        super().__init__(target, tree, [] if back else [()], "set_state" if back else "get_state")
        self.where, self.back = address(generator), back


class KeptStates:
    """The generator states that one trace's checkpoints save.

    Args:
        trace: the trace.
    """

    def __init__(self, trace: TraceState) -> None:
        self._trace = trace
        self._values: dict[
            int, tuple[torch.Tensor, Value]
        ] = {}  # by ids of the placeholders for states

    def keep(self, generator: torch.Generator) -> torch.Tensor:
        """Return a placeholder for the state that a generator has here, and record the read."""
        state = state_of(generator)
        value = self._trace.new_value(
            TensorSpec.contiguous(tuple(state.shape), state.dtype, state.device)
        )
        self._values[id(state)] = state, value
        self._add(_Keep(generator, back=False), (), (value,))
        return state

    def put_back(self, generator: torch.Generator, state: torch.Tensor) -> None:
        """Record that a saved state is restored.

        Raises:
            UnsupportedError: the state was not saved here.
        """
        _, value = self._values.get(id(state), (None, None))
        if value is None:
            raise UnsupportedError(
                "a checkpoint restores a state of a random generator that was saved outside the "
                "function; run the whole checkpoint, forward and backward, inside the function",
                reason=Reason.SEEDING,
            )
        self._add(_Keep(generator, back=True), (value,), ())

    def _add(self, op: Any, args: tuple[Value, ...], outputs: tuple[Value, ...]) -> None:
        self._trace.steps.append(Node(op, args, {}, outputs, False, location=user_location()))

    def needed(self, steps: list[Step]) -> list[Step]:
        """Return the steps without saves and restores that change nothing."""
        while self._values:
            idle = _unread(steps) or _overwritten(steps) or _there_anyway(steps)
            if not idle:
                break
            steps = [step for step in steps if id(step) not in idle]
        return steps


def keeps_state(step: Step) -> bool:
    """Return whether a step saves or restores the state of a generator, for a checkpoint."""
    op: Any = step.op if isinstance(step, Node) else None
    return type(op) is _Keep


def _unread(steps: Sequence[Step]) -> set[int]:
    """Return the ids of steps that save states which are never restored."""
    nodes = [step for step in steps if isinstance(step, Node)]
    read = {value for node in nodes for value in node.reads}
    return {
        id(node)
        for node in nodes
        if keeps_state(node) and node.outputs and node.outputs[0] not in read
    }


def _overwritten(steps: Sequence[Step]) -> set[int]:
    """Return the ids of steps that restore a state which the next restore overwrites before a read
    or a draw.
    """
    last: dict[int, Step] = {}
    found: set[int] = set()
    for step in steps:
        if not isinstance(step, Node):
            continue
        op: Any = step.op
        if type(op) is _Keep:
            before = last.pop(op.where, None)
            if op.back:
                found |= set() if before is None else {id(before)}
                last[op.where] = step
        elif draws_random_numbers(step):
            last.clear()
    return found


def _there_anyway(steps: Sequence[Step]) -> set[int]:
    """Return the ids of steps that restore a state which the generator already has."""
    now: dict[int, Any] = {}
    drawn: dict[Value, Any] = {}  # the state that each value holds
    found: set[int] = set()
    for step in steps:
        if not isinstance(step, Node):
            continue
        op: Any = step.op
        if type(op) is not _Keep:
            now = {} if draws_random_numbers(step) else now
        elif op.back:
            held = drawn[step.args[0]]
            found |= {id(step)} if now.get(op.where) is held else set()
            now[op.where] = held
        else:
            value: Any = step.outputs[0]
            drawn[value] = now.setdefault(op.where, value)
    return found
