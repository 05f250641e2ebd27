"""The autograd history of symbolic tensors: of arguments that are no leaves, of subgraphs, and of
results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from symshape.errors import Reason, UnsupportedError
from symshape.torch_internals import dispatch, pytree
from symshape.tracing.restart import needs_loops
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.tracing.trace_state import TraceState


class MadeByAutograd(torch.autograd.Function):
    """Give the symbolic tensor of an argument that is no leaf an autograd history."""

    @staticmethod
    def forward(ctx: Any, tensor: SymbolicTensor) -> SymbolicTensor:
        """Return another symbolic tensor of the same value."""
        return SymbolicTensor.make(tensor._spec, tensor._value, tensor._tracer)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Return the gradient unchanged."""
        return gradient


def reached(roots: Iterable[Any]) -> Iterator[Any]:
    """Yield the autograd nodes that run in a backward pass from ``roots``."""
    waiting, seen = list(roots), set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [parent for parent, _ in node.next_functions]


def histories(tracer: TraceState, result: Any) -> list[Any]:
    """Return the autograd nodes of the results.  Must be called within the trace: for a view
    autograd runs ops anew.
    """
    with dispatch.DisableTorchFunction(), tracer.inferring():
        return [
            leaf.grad_fn for leaf in pytree.tree_leaves(result) if isinstance(leaf, SymbolicTensor)
        ]


class MadeInside(torch.autograd.Function):
    """Give a symbolic tensor inside a subgraph a history that leads to the tensors which the
    subgraph is run with.
    """

    @staticmethod
    def forward(
        ctx: Any, make: Callable[[], SymbolicTensor], *tensors: torch.Tensor
    ) -> SymbolicTensor:
        """Return the symbolic tensor."""
        return make()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Refuse a backward pass inside of a subgraph; the subgraph's results do not lead here.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "the function computes gradients through a part of it that runs again and again",
            reason=Reason.LOST_GRADIENTS,
        )


class MadeOfParts(torch.autograd.Function):
    """Give the results of a control-flow node a history that leads to the tensors which its
    subgraphs read.
    """

    @staticmethod
    def forward(
        ctx: Any,
        make: Callable[[], list[SymbolicTensor]],
        floating: Sequence[bool],
        name: str,
        *tensors: torch.Tensor,
    ) -> Any:
        """Return the results; ``floating`` says which of them have gradients."""
        ctx.name = name
        made = make()
        ctx.mark_non_differentiable(
            *(each for each, is_so in zip(made, floating, strict=True) if not is_so)
        )
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Refuse a backward pass through the node: the trace does not know which subgraph runs, and
        how often.

        Raises:
            Restart: always, with loops unrolled.
        """
        raise needs_loops(
            f"the function computes gradients of a {ctx.name} itself, of which a trace does not "
            "know what it runs; call backward outside of the function, or train through "
            "torch.compile(backend='symshape')"
        )
