"""What autograd knows of the tensors of a trace: stand-ins with a history, and the histories of results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from symshape.tracing.intercept.fallbacks import Inferrer
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


def reached(roots: Iterable[Any]) -> Iterator[Any]:
    """Autograd's nodes that run where backward begins at some of them."""
    waiting, seen = list(roots), set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [parent for parent, _ in node.next_functions]


def histories(tracer: Inferrer, result: Any) -> list[Any]:
    """Autograd's nodes of the results; while the trace lasts, since autograd makes a view anew to have that of one."""
    with torch._C.DisableTorchFunction(), tracer.inferring():
        return [leaf.grad_fn for leaf in pytree.tree_leaves(result) if isinstance(leaf, SymbolicTensor)]
