"""What no runner can serve that runs a program once on memory of its own and then again and again."""

from __future__ import annotations

from typing import Any

from symshape.graph.opaque import OpaqueCall
from symshape.graph.program import Program
from symshape.graph.steps import Value
from symshape.runtime.runners.protocol import Unfit


def check_recordable(program: Program, *, draws: bool = False) -> None:
    """Whether a program does the same whenever it is run; random numbers apart, if it may draw them.

    Raises:
        Unfit: it reads data on the host, draws random numbers, records gradients, or changes inference mode inside.
    """
    graph = program.graph
    ops: list[Any] = [node.op for node in graph.nodes]
    opaque = next((op for op in ops if isinstance(op, OpaqueCall)), None)
    if opaque is not None:
        raise Unfit(f"it calls {opaque}, which is no single operator")
    if any(node.bindings for node in graph.nodes):
        raise Unfit("it reads data on the host (data-dependent sizes or item())")
    if any(node.inference is not None for node in graph.nodes):
        raise Unfit("it turns inference mode on or off inside")
    if graph.uses_randomness and not draws:
        raise Unfit(
            "it draws random numbers, and others at padded sizes than eager does; allow that with "
            'Options(randomness="any"), or use runner="cudagraph"'
        )
    roots = [*(each.value for each in graph.inputs), *(each.value for each in graph.lifted)]
    if program.modes.grad and any(_requires_grad(program, value) for value in roots):
        raise Unfit("gradients are recorded; run it under torch.no_grad() or train through torch.compile")


def _requires_grad(program: Program, value: Value) -> bool:
    for lifted in program.graph.lifted:
        if lifted.value is value:
            return lifted.tensor.requires_grad
    for each in program.graph.inputs:
        if each.value is value:
            return bool(getattr(program.call.keys[each.position], "requires_grad", False))
    return False
