"""Why a step of a program cannot be recorded once and then run again and again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs
import torch

from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.opaque_calls import OpaqueCall
from symshape.graph.random_states import idle_random_states, keeps_random_state_on_host
from symshape.graph.steps import Assertion, Node, Step, Value, draws_random_numbers, values_in
from symshape.graph.symbol_names import names_of_spec, names_of_step

__all__ = ["Fault", "Faults", "Left", "fault_of_node", "name_of_step", "told"]


@attrs.frozen
class Fault:
    """Why a step cannot be recorded.

    Attributes:
        reason: why.
        remedy: what would make it possible; may be empty.
    """

    reason: str
    remedy: str = ""


Left = Mapping[tuple[str, str], Fault]
"""Why calls of an op are not recorded: by its name and the user's line; an empty line stands for all of them."""
_HOST = Fault(
    "it reads data on the host (data-dependent sizes or item())",
    "a mask in place of what is selected (torch.where), or tensors in place of numbers",
)
_CHECK = Fault("it checks data")
_DRAWS = Fault(
    "it draws random numbers",
    'Options(randomness="any"), if other numbers of the same distribution will do',
)
_NUMBER = Fault("it needs a number that is read from a tensor when the program runs", "a tensor in place of the number")
_STATE = Fault(
    "its forward and its backward pass on the numbers that they drop by, where no graph finds them",
    "dropout outside of the attention, or a dtype of 16 bits, whose kernels keep them on the device",
)
_INFERENCE = Fault("it turns inference mode on or off inside", "torch.inference_mode around the call")


def fault_of_node(node: Node) -> Fault | None:
    """Why a node does not do the same whenever it is run, random numbers apart; None where it does."""
    op: Any = node.op
    if isinstance(op, OpaqueCall):
        return Fault(f"it calls {op}, which is no single operator")
    if node.bindings:
        return _HOST
    if keeps_random_state_on_host(node):
        return _STATE
    return None if node.inference is None else _INFERENCE


def name_of_step(step: Step) -> str:
    """What a step is called in texts."""
    return str(step.op) if isinstance(step, Node) else "a check of data"


def told(step: Step, fault: Fault) -> str:
    """Why a step cannot be recorded, with the user's line, and what would make it possible."""
    origin = step.origin if isinstance(step, Node) else step.guard.origin
    where = "" if origin is None else f" ({origin})"
    return f"{name_of_step(step)}: {fault.reason}{where}{'; ' if fault.remedy else ''}{fault.remedy}"


@attrs.frozen(eq=False, slots=False)
class Faults:
    """Why steps of a graph cannot be part of a piece that is recorded.

    Args:
        graph: the graph.
        device: where pieces compute.
        left: what is left out besides.
        draws: whether random numbers may be drawn.
    """

    graph: Graph
    device: torch.device
    left: Left = attrs.field(factory=dict)
    draws: bool = False

    def of(self, step: Step) -> Fault | None:
        """Why a step cannot be; None where it can."""
        if isinstance(step, Assertion):
            return _CHECK
        found = fault_of_node(step)
        if found:
            return found
        if draws_random_numbers(step) and not self.draws:
            return _DRAWS
        if self.left and (why := self.left.get((str(step.op), "")) or self.left.get((str(step.op), str(step.origin)))):
            return why
        if _counts_data(step):
            return _HOST
        if any(isinstance(number, FloatTerm) and number.unbacked() for number in step.numbers):
            return _NUMBER
        made = {value for place, value in enumerate(step.outputs) if place == 0 or value in self._read}
        seen = {value for value in (*step.reads, *made) if value is not None} - self._idle
        places = {value.spec.device for value in seen} - {self.device}
        return Fault(f"it computes on {min(map(str, places))}, not on {self.device}") if places else None

    @cached_property
    def _idle(self) -> frozenset[Value]:
        """What lies anywhere, and nobody looks at."""
        return idle_random_states(self.graph.nodes)

    @cached_property
    def _read(self) -> set[Value]:
        """What somebody reads: other results (random states of attention) may lie anywhere."""
        return {value for node in self.graph.nodes for value in node.reads} | set(values_in(self.graph.outputs))


def _counts_data(node: Node) -> bool:
    """Whether a size of a result is a count of data that is known already, since it was counted before."""
    made = set().union(*(names_of_spec(value.spec) for value in node.outputs if value is not None))
    if not made:
        return False
    known = names_of_step(node).union(*(names_of_spec(value.spec) for value in node.reads))
    return not made <= known
