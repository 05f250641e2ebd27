"""The order constraints between steps of a graph, from data, memory, checks and effects."""

from __future__ import annotations

from typing import Any

from symshape.graph.control_flow import ControlFlow
from symshape.graph.dead_code import may_refuse_data
from symshape.graph.graph import Graph
from symshape.graph.opaque_calls import OpaqueCall
from symshape.graph.steps import Assertion, Node, Step, Value, draws_random_numbers, written_values
from symshape.graph.symbol_names import names_of_spec, names_of_step

__all__ = ["StepOrder"]


class StepOrder:
    """The order constraints between the steps of a graph.

    Attributes:
        needs: for each step, the numbers of the steps that must run before it, all of them smaller.
        bound: the symbols that steps bind, with the number of the step.
        effects: the steps that keep their order whatever they read.
    """

    def __init__(self, graph: Graph) -> None:
        roots = [*(each.value for each in graph.inputs), *(each.value for each in graph.lifted)]
        # arguments may share memory: if any is written, all count as the same memory
        self._roots = {id(root.storage) for root in roots} if graph.mutated else set[int]()
        self._has_effects = graph.mutates_inputs or graph.uses_randomness
        self._checked = {
            symbol.name
            for step in graph.steps
            if isinstance(step, Assertion)
            for symbol in step.guard.term.symbols
        }
        self._made: dict[Value, int] = {}
        self.bound: dict[str, int] = {}
        self._writer: dict[int, int] = {}  # by memory: the step that wrote to it last
        self._readers: dict[int, list[int]] = {}  # by memory: the steps that have read it since
        self._checks: list[int] = []
        self.effects: set[int] = set()
        self._effect: int | None = None
        self._barrier: int | None = None
        self.needs = [self._step(number, step) for number, step in enumerate(graph.steps)]
        self._steps = graph.steps
        self._names: dict[int, frozenset[str]] = {}

    def names(self, number: int) -> frozenset[str]:
        """Return the symbols that occur in a step: in its numbers, its arguments and its
        results.
        """
        found = self._names.get(number)
        if found is None:
            step = self._steps[number]
            names = names_of_step(step)
            if isinstance(step, Node):
                values = dict.fromkeys(
                    (*step.reads, *(each for each in step.outputs if each is not None))
                )
                names = names.union(*(names_of_spec(value.spec) for value in values))
            found = self._names[number] = frozenset(names)
        return found

    def _step(self, number: int, step: Step) -> set[int]:
        needs = set() if self._barrier is None else {self._barrier}
        names = names_of_step(step)
        if isinstance(step, Node):
            names = names.union(
                *(names_of_spec(value.spec) for value in step.outputs if value is not None)
            )
        needs.update(self.bound[name] for name in names if name in self.bound)
        if isinstance(step, Assertion):
            self._checks.append(number)
            self._after_effects(number, needs)
            return needs
        op: Any = step.op
        if isinstance(op, OpaqueCall) and not isinstance(op, ControlFlow):
            needs.update(range(number))  # the call may do anything
            self._barrier = number
        needs.update(self._made[value] for value in step.reads if value in self._made)
        written = {self._memory(value) for value in written_values(step)}
        self._touch(number, step, written, needs)
        if written or self._is_checked(step, names):
            needs.update(self._checks)
        self._made.update((value, number) for value in step.outputs if value is not None)
        self.bound.update((binding.symbol, number) for binding in step.bindings)
        if self._is_effect(step, written):
            self._after_effects(number, needs)
        return needs

    def _touch(self, number: int, step: Node, written: set[int], needs: set[int]) -> None:
        """Order a step after the last write to memory that it touches, and a write after the reads
        since then.
        """
        touched = {
            self._memory(value) for value in (*step.reads, *step.outputs) if value is not None
        }
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
        """Return whether a step involves sizes that were checked: it may rely on the earlier
        checks.
        """
        if not self._checks:
            return False
        return not self._checked.isdisjoint(
            names.union(*(names_of_spec(value.spec) for value in step.reads))
        )

    def _is_effect(self, step: Node, written: set[int]) -> bool:
        if 0 in written or draws_random_numbers(step) or step.op.namespace not in ("aten", "prims"):
            return True
        return not step.op._schema.returns or (self._has_effects and may_refuse_data(step))

    def _after_effects(self, number: int, needs: set[int]) -> None:
        if self._effect is not None:
            needs.add(self._effect)
        self._effect = number
        self.effects.add(number)
