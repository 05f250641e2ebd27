"""Calls of ``autograd.Function`` in a trace: what is noted of them, and whether a graph can call them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

import attrs
import torch

from symshape.graph.control_flow import ControlFlow
from symshape.graph.opaque_calls import LiveCall
from symshape.graph.steps import Node, Step, Value, written_values
from symshape.torch_internals import dispatch
from symshape.tracing.kept_states import keeps_state
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.tracing.traced_modes import outside_transforms

NODE = torch.autograd.function.BackwardCFunction
_OF_OPERATORS = "torch._library.autograd"  # gradients of custom operators: an operator in a graph calls its own
_COLLECTIVES = "_c10d_functional"  # what exchanges gradients was never held against several ranks


@attrs.frozen(eq=False)
class Applied:
    """A call of an ``autograd.Function``: from which step to which it ran, and what stands for it in a graph.

    Attributes:
        name: the function's.
        node: autograd's node of its results; None under a transform that keeps its history where a trace does not see.
        start, end: the steps that it made.
        live: the call itself, or why it cannot be called.
    """

    name: str
    node: Any
    start: int
    end: int
    live: Node | str


def outermost(applied: Iterable[Applied]) -> list[Applied]:
    """Those that no other one called; in the order in which they ended."""
    found: list[Applied] = []
    for each in reversed(list(applied)):
        if not found or each.start < found[-1].start:
            found.append(each)
    return found[::-1]


def is_of_operator(inside: Sequence[Step], cls: Any) -> TypeGuard[Sequence[Node]]:
    """Whether a function is a custom operator's own (``register_autograd``), which a graph calls by the operator."""
    if getattr(cls.forward, "__module__", "") != _OF_OPERATORS or [type(each) for each in inside] != [Node]:
        return False
    op: Any = inside[0].op  # type: ignore[union-attr]
    return bool(op.namespace != _COLLECTIVES)


class NotLive(Exception):
    """Why a call of an ``autograd.Function`` cannot stand in a graph."""


def node_of(result: Any) -> Any:
    """Autograd's node of what a function returned, if it is one of a function's."""
    for each in result if isinstance(result, tuple) else (result,):
        if type(each) is SymbolicTensor:
            with dispatch.DisableTorchFunction():  # the answer is not for the program
                node: Any = each.grad_fn
            if isinstance(node, NODE):
                return node
    return None


def node_for(leaf: torch.Tensor) -> Any:
    """Autograd's node of a leaf that requires gradients, which hands it its own, or of what has a history.

    Outside transforms (``torch.func.grad`` around the call), in which a view of it has the history of their own level.
    """
    with outside_transforms(), torch.inference_mode(False), torch.enable_grad():
        return leaf.grad_fn or leaf.view_as(leaf).grad_fn.next_functions[0][0]  # type: ignore[union-attr]


def made_in(steps: Sequence[Step]) -> set[Value]:
    """What steps make."""
    return {value for step in steps if isinstance(step, Node) for value in step.outputs if value is not None}


def not_again(inside: Sequence[Step]) -> str:
    """Why steps cannot be left to a function that does them again, in words."""
    if any(not isinstance(step, Node) or step.bindings for step in inside):
        return "which reads data"
    return not_twice(inside)


def not_twice(inside: Sequence[Step]) -> str:
    """Why steps that eager does once more in backward may do something else than steps that are done once, in words."""
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
