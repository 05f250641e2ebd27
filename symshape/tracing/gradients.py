"""What autograd knows of the tensors of a trace: stand-ins with a history, and histories that a graph would lose."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from symshape.errors import UnsupportedError
from symshape.graph.steps import Value
from symshape.tracing.intercept.fallbacks import Inferrer
from symshape.tracing.intercept.whole_op import WholeOp
from symshape.tracing.symbolic.tensors import SymbolicTensor


class MadeByAutograd(torch.autograd.Function):
    """Makes the stand-in of an argument that is no leaf: the same value, with a history."""

    @staticmethod
    def forward(ctx: Any, tensor: SymbolicTensor) -> SymbolicTensor:
        """Another symbolic tensor of the same value."""
        return SymbolicTensor.make(tensor._spec, tensor._value, tensor._tracer)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """The gradient as it is."""
        return gradient


def histories(tracer: Inferrer, result: Any) -> list[Any]:
    """Autograd's nodes of the results; while the trace lasts, since autograd makes a view anew to have that of one."""
    with torch._C.DisableTorchFunction(), tracer.inferring():
        return [leaf.grad_fn for leaf in pytree.tree_leaves(result) if isinstance(leaf, SymbolicTensor)]


def refuse_gradients_of_its_own(histories: Sequence[Any], arguments: Container[Value]) -> None:
    """Replaying ATen ops would lose the backward of an ``autograd.Function``, and a ``requires_grad_()`` inside."""
    waiting = list(histories)
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction) and not _is_stand_in(node):
            raise UnsupportedError(
                f"the function uses the autograd.Function {type(node).__name__.removesuffix('Backward')} "
                "on tensors that require gradients, whose backward a traced graph would lose; "
                "call it under torch.no_grad(), or train through torch.compile(backend='symshape')"
            )
        leaf = getattr(node, "variable", None)
        if type(leaf) is SymbolicTensor and leaf._value not in arguments:
            raise UnsupportedError(
                "the function returns what depends on a tensor that it made to require gradients by requires_grad_(), "
                "which a traced graph does not repeat; return detached results, or pass that tensor as an argument"
            )
        waiting += [parent for parent, _ in node.next_functions]


def _is_stand_in(node: Any) -> bool:
    """Whether an autograd node is only the history of an argument's stand-in, or of an op that the graph repeats."""
    return type(node).__name__ in (f"{MadeByAutograd.__name__}Backward", f"{WholeOp.__name__}Backward")
