"""Calls of ``autograd.Function`` in a trace: their records, and whether a graph can call them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

import attrs
import torch

from symshape.graph.control_flow import ControlFlow
from symshape.graph.opaque_calls import LiveCall
from symshape.graph.steps import COLLECTIVES, Node, Step, Value, written_values
from symshape.torch_internals import dispatch
from symshape.tracing.autograd.checkpoint_rng import keeps_state
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.tracing.traced_modes import outside_transforms

NODE = torch.autograd.function.BackwardCFunction
# gradients of custom operators: an operator in a graph calls its own
_OF_OPERATORS = "torch._library.autograd"


@attrs.frozen(eq=False)
class Applied:
    """A call of an ``autograd.Function``: its range of steps, and the node that calls the function
    in a graph.

    Attributes:
        name: the function's name.
        node: the autograd node of its results; None under a transform that hides the history from
            the trace.
        start, end: the range of steps that it made.
        live: a node that makes the call, or the reason why a graph cannot make it.
    """

    name: str
    node: Any
    start: int
    end: int
    live: Node | str


def outermost(applied: Iterable[Applied]) -> list[Applied]:
    """Return the calls that no other call contains, in the order in which they ended."""
    found: list[Applied] = []
    for each in reversed(list(applied)):
        if not found or each.start < found[-1].start:
            found.append(each)
    return found[::-1]


def is_of_operator(inside: Sequence[Step], cls: Any) -> TypeGuard[Sequence[Node]]:
    """Return whether a function belongs to a custom operator (``register_autograd``), which a graph
    calls instead.
    """
    if getattr(cls.forward, "__module__", "") != _OF_OPERATORS or [
        type(each) for each in inside
    ] != [Node]:
        return False
    op: Any = inside[0].op  # type: ignore[union-attr]
    # gradients that exchange data were never tested on several ranks
    return bool(op.namespace != COLLECTIVES)


class NotLive(Exception):
    """The reason why a graph cannot call an ``autograd.Function``."""


def node_of(result: Any) -> Any:
    """Return the autograd node of a function's result if an ``autograd.Function`` made it; else
    None.
    """
    for each in result if isinstance(result, tuple) else (result,):
        if type(each) is SymbolicTensor:
            with dispatch.DisableTorchFunction():  # our own read, not the program's
                node: Any = each.grad_fn
            if isinstance(node, NODE):
                return node
    return None


def node_for(leaf: torch.Tensor) -> Any:
    """Return the autograd node of a tensor: its history, or the gradient accumulator of a leaf.

    Transforms (``torch.func.grad`` around the call) are left: inside, a view of the leaf has a
    history of their level.
    """
    with outside_transforms(), torch.inference_mode(False), torch.enable_grad():
        return leaf.grad_fn or leaf.view_as(leaf).grad_fn.next_functions[0][0]  # type: ignore[union-attr]


def made_in(steps: Sequence[Step]) -> set[Value]:
    """Return the values that steps make."""
    return {
        value
        for step in steps
        if isinstance(step, Node)
        for value in step.outputs
        if value is not None
    }


def not_again(inside: Sequence[Step]) -> str:
    """Return why a function cannot be called in place of these steps; empty if it can."""
    if any(not isinstance(step, Node) or step.bindings for step in inside):
        return "which reads data"
    return not_twice(inside)


def not_twice(inside: Sequence[Step]) -> str:
    """Return why steps may behave differently when eager's backward runs them again; empty if they
    do not.
    """
    nodes = [step for step in inside if isinstance(step, Node)]
    made = made_in(inside)
    outside = {id(value.storage) for node in nodes for value in node.reads if value not in made}
    for node in nodes:
        op: Any = node.op
        if isinstance(op, LiveCall) and not isinstance(op, ControlFlow) and not keeps_state(node):
            return "which uses gradients of its own"
        if any(id(value.storage) in outside for value in written_values(node)):
            return "which writes to tensors that it is given"
    return ""
