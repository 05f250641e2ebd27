"""The reasons why a step of a program cannot be recorded once and then replayed."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import attrs
import torch

from symshape.forks import cached_property
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.opaque_calls import OpaqueCall
from symshape.graph.random_states import RandomStates, keeps_random_state_on_host
from symshape.graph.steps import Assertion, Node, Step, Value, draws_random_numbers, values_in
from symshape.graph.symbol_names import names_of_spec, names_of_step

__all__ = ["Fault", "Faults", "Left", "fault_of_node", "name_of_step", "told"]


@attrs.frozen
class Fault:
    """The reason why a step cannot be recorded.

    Attributes:
        reason: the reason.
        remedy: a change that would make recording possible; may be empty.
    """

    reason: str
    remedy: str = ""


Left = Mapping[tuple[str, str], Fault]
"""The reasons why calls of an op are not recorded, by its name and the user's line; an empty line
means all lines.
"""
_HOST = Fault(
    "it reads data on the host (data-dependent sizes or item())",
    "a mask in place of what is selected (torch.where), or tensors in place of numbers",
)
_CHECK = Fault("it checks data")
_DRAWS = Fault(
    "it draws random numbers",
    'Options(randomness="any"), if other numbers of the same distribution will do',
)
_NUMBER = Fault(
    "it needs a number that is read from a tensor when the program runs",
    "a tensor in place of the number",
)
_STATE = Fault(
    "its forward passes the random numbers of its dropout to its backward outside any graph",
    "dropout outside of the attention, or a dtype of 16 bits, "
    "whose kernels keep them on the device",
)
_INFERENCE = Fault(
    "it turns inference mode on or off inside", "torch.inference_mode around the call"
)
_SPARSE = Fault(
    "it computes with a sparse tensor", "a dense one (an embedding without sparse=True)"
)


def fault_of_node(node: Node, shared: Container[Node]) -> Fault | None:
    """Return why a node does not do the same in every run; None if it does, except for random
    numbers.

    ``shared``: the attention whose random state is used outside of what is recorded.
    """
    op: Any = node.op
    if isinstance(op, OpaqueCall):
        return Fault(f"it calls {op}, which is no single operator")
    if node.bindings:
        return _HOST
    values = (each for each in (*node.reads, *node.outputs) if each is not None)
    if any(each.spec.layout is not torch.strided for each in values):
        return _SPARSE
    if keeps_random_state_on_host(node) and node in shared:
        return _STATE
    return None if node.inference is None else _INFERENCE


def name_of_step(step: Step) -> str:
    """Return the name of a step for texts."""
    return str(step.op) if isinstance(step, Node) else "a check of data"


def told(step: Step, fault: Fault) -> str:
    """Return why a step cannot be recorded, with the user's line and a remedy."""
    origin = step.origin if isinstance(step, Node) else step.guard.origin
    where = "" if origin is None else f" ({origin})"
    return (
        f"{name_of_step(step)}: {fault.reason}{where}{'; ' if fault.remedy else ''}{fault.remedy}"
    )


@attrs.frozen(eq=False, slots=False)
class Faults:
    """The faults that keep steps of a graph out of recorded pieces.

    Args:
        graph: the graph.
        device: the device on which pieces compute.
        left: the ops to leave out besides.
        draws: whether random numbers may be drawn.
        parted: the attention whose random state is used in several pieces.
    """

    graph: Graph
    device: torch.device
    left: Left = attrs.field(factory=dict)
    draws: bool = False
    parted: frozenset[Node] = frozenset()

    def of(self, step: Step) -> Fault | None:
        """Return why a step cannot be recorded; None if it can."""
        if isinstance(step, Assertion):
            return _CHECK
        found = fault_of_node(step, self._shared)
        if found:
            return found
        if draws_random_numbers(step) and not self.draws:
            return _DRAWS
        if self.left and (
            why := self.left.get((str(step.op), ""))
            or self.left.get((str(step.op), str(step.origin)))
        ):
            return why
        if _counts_data(step):
            return _HOST
        if any(isinstance(number, FloatTerm) and number.unbacked() for number in step.numbers):
            return _NUMBER
        made = {
            value for place, value in enumerate(step.outputs) if place == 0 or value in self._read
        }
        seen = {value for value in (*step.reads, *made) if value is not None} - self._states.inside
        places = {value.spec.device for value in seen} - {self.device}
        return (
            Fault(f"it computes on {min(map(str, places))}, not on {self.device}")
            if places
            else None
        )

    @cached_property
    def _states(self) -> RandomStates:
        return RandomStates.of(self.graph)

    @cached_property
    def _shared(self) -> frozenset[Node]:
        return self._states.shared | self.parted

    @cached_property
    def _read(self) -> set[Value]:
        """The values that a node or the result reads; other results (random states of attention)
        may be anywhere.
        """
        return {value for node in self.graph.nodes for value in node.reads} | set(
            values_in(self.graph.outputs)
        )


def _counts_data(node: Node) -> bool:
    """Return whether a result has a data-dependent size that an earlier step bound and this node
    counts again.
    """
    made = set().union(*(names_of_spec(value.spec) for value in node.outputs if value is not None))
    if not made:
        return False
    known = names_of_step(node).union(*(names_of_spec(value.spec) for value in node.reads))
    return not made <= known
