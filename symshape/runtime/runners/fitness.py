"""What no runner can serve that runs a program once on memory of its own and then again and again."""

from __future__ import annotations

from typing import Any

from symshape.graph.autograd_history import RecordedHistory
from symshape.graph.opaque_calls import OpaqueCall
from symshape.graph.program import Program
from symshape.graph.steps import Node, Value
from symshape.runtime.pieces.faults import fault_of_node
from symshape.runtime.runners.protocol import Unfit

__all__ = ["check_recordable", "check_without_gradients"]


def check_recordable(program: Program, *, draws: bool = False) -> None:
    """Whether a program does the same whenever it is run; random numbers apart, if it may draw them.

    Raises:
        Unfit: it reads data on the host, draws random numbers, records gradients, or changes inference mode inside.
    """
    graph = program.graph
    faulty = [(node, fault) for node in graph.nodes if (fault := fault_of_node(node)) is not None]
    if faulty:
        raise Unfit(min(faulty, key=lambda each: _rank(each[0]))[1].reason)
    if graph.uses_randomness and not draws:
        raise Unfit(
            "it draws random numbers, and others at padded sizes than eager does; allow that with "
            'Options(randomness="any"), or use runner="cudagraph"'
        )
    check_without_gradients(program)


def check_without_gradients(program: Program) -> None:
    """Whether a run records no gradients.

    Raises:
        Unfit: it does.
    """
    graph = program.graph
    roots = [*(each.value for each in graph.inputs), *(each.value for each in graph.lifted)]
    asking = [value for value in roots if program.modes.grad and _requires_grad(program, value)]
    if asking and not RecordedHistory(graph.steps, asking).silent:
        raise Unfit("gradients are recorded; run it under torch.no_grad() or train through torch.compile")


def _rank(node: Node) -> int:
    """Which of several faults is told: calls of what is no operator, then data, then modes."""
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
