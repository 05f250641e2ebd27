"""The checks that a program can be run once on fixed memory and then replayed: no host reads, no
autograd recording.
"""

from __future__ import annotations

from typing import Any

from symshape.graph.autograd_history import RecordedHistory
from symshape.graph.opaque_calls import OpaqueCall
from symshape.graph.program import Program
from symshape.graph.random_states import RandomStates
from symshape.graph.steps import Node, Value
from symshape.runtime.pieces.faults import fault_of_node
from symshape.runtime.runners.protocol import Unfit

__all__ = ["check_recordable", "check_without_gradients", "records_gradients"]


def check_recordable(program: Program, *, draws: bool = False) -> None:
    """Raise unless a program does the same in every run; with ``draws``, it may draw random
    numbers.

    Raises:
        Unfit: it reads data on the host, draws random numbers, records gradients, or changes
            inference mode inside.
    """
    graph = program.graph
    shared = RandomStates.of(graph).shared
    faulty = [
        (node, fault) for node in graph.nodes if (fault := fault_of_node(node, shared)) is not None
    ]
    if faulty:
        raise Unfit(min(faulty, key=lambda each: _rank(each[0]))[1].reason)
    if graph.uses_randomness and not draws:
        raise Unfit(
            "it draws random numbers, which at padded sizes differ from eager's; allow that with "
            'Options(randomness="any"), or use runner="cudagraph"'
        )
    check_without_gradients(program)


def check_without_gradients(program: Program) -> None:
    """Raise if a run of a program records gradients.

    Raises:
        Unfit: it does.
    """
    if records_gradients(program):
        raise Unfit(
            "gradients are recorded; run it under torch.no_grad() or train through torch.compile"
        )


def records_gradients(program: Program) -> bool:
    """Return whether a run of a program may record gradients."""
    graph = program.graph
    roots = [*(each.value for each in graph.inputs), *(each.value for each in graph.lifted)]
    asking = [value for value in roots if _requires_grad(program, value)]
    modes = program.modes
    if not asking or not (modes.grad or any(node.grad for node in graph.nodes)):
        return False
    found = RecordedHistory(graph.steps, asking, grad=modes.grad, inference=modes.inference)
    return not found.silent


def _rank(node: Node) -> int:
    """Return a fault's rank for reports: calls that are no operators come first, then data reads,
    then modes.
    """
    op: Any = node.op
    return 0 if isinstance(op, OpaqueCall) else 1 if node.bindings else 2


def _requires_grad(program: Program, value: Value) -> bool:
    for lifted in program.graph.lifted:
        if lifted.value is value:
            return lifted.tensor.requires_grad
    for each in program.graph.inputs:
        if each.value is value:
            return bool(getattr(program.call.keys[each.position], "requires_grad", False))
    return False
