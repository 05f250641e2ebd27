"""What autograd knows of the tensors of a trace: stand-ins with a history, and the histories of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from symshape.errors import UnsupportedError
from symshape.torch_internals import dispatch, pytree
from symshape.tracing.intercept.fallbacks import Inferrer
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.tracing.written_out import NeedsLoops


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
    with dispatch.DisableTorchFunction(), tracer.inferring():
        return [leaf.grad_fn for leaf in pytree.tree_leaves(result) if isinstance(leaf, SymbolicTensor)]


class MadeInside(torch.autograd.Function):
    """Makes what stands in a part for tensors that other runs of it get, with a history that leads to theirs."""

    @staticmethod
    def forward(ctx: Any, make: Callable[[], SymbolicTensor], *tensors: torch.Tensor) -> SymbolicTensor:
        """The stand-in."""
        return make()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Never: what runs backward inside of a part is refused, and its results do not lead here."""
        raise UnsupportedError("the function computes gradients through a part of it that runs again and again")


class MadeOfParts(torch.autograd.Function):
    """Makes the results of a node that runs parts: with a history that leads to what the parts read."""

    @staticmethod
    def forward(
        ctx: Any, make: Callable[[], list[SymbolicTensor]], floating: Sequence[bool], name: str, *tensors: torch.Tensor
    ) -> Any:
        """The results; ``floating`` says which have gradients."""
        ctx.name = name
        made = make()
        ctx.mark_non_differentiable(*(each for each, is_so in zip(made, floating, strict=True) if not is_so))
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Refused: which part runs, and how often, is not known.

        Raises:
            NeedsLoops: always.
        """
        raise NeedsLoops(
            f"the function computes gradients of a {ctx.name} itself, of which a trace does not know what it runs; "
            "call backward outside of the function, or train through torch.compile(backend='symshape')"
        )
