"""A graph cut into pieces: steps that a runner may record, and between them those that run as they are.

Steps that do not depend on each other may change places, so that there are few pieces.  What writes, draws random
numbers or checks stays in its order, and so does what reads memory that is written to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from meta_fns.core.registry import aliasing
from symshape.graph.control_flow import ControlFlow
from symshape.graph.dead_code import may_refuse_data
from symshape.graph.graph import Graph
from symshape.graph.names import names_of_spec, names_of_step
from symshape.graph.opaque import OpaqueCall
from symshape.graph.steps import Assertion, Node, Step, Value, draws_random_numbers, writes_nothing, written_values

__all__ = ["Piece", "partition"]

_OF_MANY = frozenset(
    (
        *("lstm", "gru", "rnn_tanh", "rnn_relu", "_cudnn_rnn", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"),
        *("_transformer_encoder_layer_fwd", "_native_multi_head_attention"),
    )
)
"""Ops that launch many kernels, at least so many:"""
_MANY = 10

Fault = Callable[[Step], str]
"""Why a step cannot be recorded; empty where it can."""


@attrs.frozen(eq=False)
class Piece:
    """Some steps of a graph, which run one after the other.

    Attributes:
        numbers: of the steps, in the order in which they run.
        recorded: whether all of them can be recorded.
        faults: why steps cannot, by their number; nothing is said of those that are too few to be worth it.
    """

    numbers: tuple[int, ...]
    recorded: bool
    faults: tuple[tuple[int, str], ...] = ()


def partition(graph: Graph, fault: Fault, least: int) -> list[Piece]:
    """The pieces of a graph in the order in which they run; none where nothing can be recorded.

    Args:
        graph: the graph.
        fault: says what cannot be recorded.
        least: fewer ops than these (views do not count) are not worth a piece of their own.
    """
    if any(node.leaves is not None for node in graph.nodes):
        return []  # a value would be another tensor in one piece than in the next
    found = [fault(step) for step in graph.steps]
    pieces: list[Piece] = []
    for numbers in _in_turns(_Order(graph).needs, [not each for each in found]):
        recorded = not found[numbers[0]] and sum(_work(graph.steps[each]) for each in numbers) >= least
        faults = tuple((each, found[each]) for each in numbers if found[each])
        before = pieces[-1] if pieces else None
        if before is not None and not recorded and not before.recorded:
            pieces[-1] = Piece((*before.numbers, *numbers), False, (*before.faults, *faults))
        else:
            pieces.append(Piece(tuple(numbers), recorded, faults))
    return pieces if any(each.recorded for each in pieces) else []


def _in_turns(needs: Sequence[Iterable[int]], fit: Sequence[bool]) -> list[list[int]]:
    """The steps in groups that are fit, or not, in turns: in each all whose needs are met."""
    left, done = list(range(len(needs))), set[int]()
    groups: list[list[int]] = []
    wanted = True
    while left:
        group, rest = [], []
        for number in left:
            if fit[number] is wanted and done.issuperset(needs[number]):
                group.append(number)
                done.add(number)
            else:
                rest.append(number)
        if group:
            groups.append(group)
        left, wanted = rest, not wanted
    return groups


def _work(step: Step) -> int:
    """About how many kernels a step launches: a view none."""
    if not isinstance(step, Node):
        return 0
    if step.op._schema.name.partition("::")[2] in _OF_MANY:
        return _MANY
    return int(aliasing(step.op).is_functional or not writes_nothing(step))


class _Order:
    """Which steps have to come before which.

    Attributes:
        needs: for each step the numbers of those that it comes after, all of them smaller.
    """

    def __init__(self, graph: Graph) -> None:
        roots = [*(each.value for each in graph.inputs), *(each.value for each in graph.lifted)]
        # arguments may share memory: where any is written to, they are taken for one
        self._roots = {id(root.storage) for root in roots} if graph.mutated else set[int]()
        self._has_effects = graph.mutates_inputs or graph.uses_randomness
        self._checked = {
            symbol.name for step in graph.steps if isinstance(step, Assertion) for symbol in step.guard.term.symbols
        }
        self._made: dict[Value, int] = {}
        self._bound: dict[str, int] = {}
        self._writer: dict[int, int] = {}  # by memory: who wrote to it last
        self._readers: dict[int, list[int]] = {}  # by memory: who has read it since
        self._checks: list[int] = []
        self._effect: int | None = None
        self._barrier: int | None = None
        self.needs = [self._step(number, step) for number, step in enumerate(graph.steps)]

    def _step(self, number: int, step: Step) -> set[int]:
        needs = set() if self._barrier is None else {self._barrier}
        names = names_of_step(step)
        if isinstance(step, Node):
            names = names.union(*(names_of_spec(value.spec) for value in step.outputs if value is not None))
        needs.update(self._bound[name] for name in names if name in self._bound)
        if isinstance(step, Assertion):
            self._checks.append(number)
            self._after_effects(number, needs)
            return needs
        op: Any = step.op
        if isinstance(op, OpaqueCall) and not isinstance(op, ControlFlow):
            needs.update(range(number))  # it may do anything
            self._barrier = number
        needs.update(self._made[value] for value in step.reads if value in self._made)
        written = {self._memory(value) for value in written_values(step)}
        self._touch(number, step, written, needs)
        if written or self._is_checked(step, names):
            needs.update(self._checks)
        self._made.update((value, number) for value in step.outputs if value is not None)
        self._bound.update((binding.symbol, number) for binding in step.bindings)
        if self._is_effect(step, written):
            self._after_effects(number, needs)
        return needs

    def _touch(self, number: int, step: Node, written: set[int], needs: set[int]) -> None:
        """Reads come after the last write to the same memory, and writes after those reads."""
        touched = {self._memory(value) for value in (*step.reads, *step.outputs) if value is not None}
        for memory in touched | written:
            if memory in self._writer:
                needs.add(self._writer[memory])
            if memory in written:
                needs.update(self._readers.pop(memory, ()))
                self._writer[memory] = number
            else:
                self._readers.setdefault(memory, []).append(number)

    def _memory(self, value: Value) -> int:
        memory = id(value.storage)
        return 0 if memory in self._roots else memory

    def _is_checked(self, step: Node, names: set[str]) -> bool:
        """Whether a step has to do with sizes that are checked: what was checked before it holds there."""
        if not self._checks:
            return False
        return not self._checked.isdisjoint(names.union(*(names_of_spec(value.spec) for value in step.reads)))

    def _is_effect(self, step: Node, written: set[int]) -> bool:
        if 0 in written or draws_random_numbers(step) or step.op.namespace not in ("aten", "prims"):
            return True
        return not step.op._schema.returns or (self._has_effects and may_refuse_data(step))

    def _after_effects(self, number: int, needs: set[int]) -> None:
        if self._effect is not None:
            needs.add(self._effect)
        self._effect = number
