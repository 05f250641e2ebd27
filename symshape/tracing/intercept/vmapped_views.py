"""Views of examples inside ``vmap(grad(...))``: slices, parts, diagonals and windows, at symbolic
sizes.

The batching rules in C++ of these views' gradients ask for plain sizes, which would fix the batch.
The rules here make the same views by the ``autograd.Function`` of
:mod:`~symshape.tracing.intercept.vmapped_ops`.  Autograd does not know its results as views, so a
write into their memory afterwards starts the trace again without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import Any

import torch

from symshape.errors import Reason
from symshape.graph.steps import Node, written_values
from symshape.torch_internals import functorch
from symshape.tracing.intercept import vmapped_ops
from symshape.tracing.intercept.torch_functions.indexing import getitem
from symshape.tracing.intercept.vmapped_ops import Batchable, Rule, Tensors
from symshape.tracing.restart import Restart, with_fewer_symbols
from symshape.tracing.symbolic.tensors import SymbolicTensor, Trace

_BASIC = (int, torch.SymInt, slice, EllipsisType, type(None))
_IN_EACH_EXAMPLE = [functorch.TransformType.Vmap, functorch.TransformType.Grad]  # outermost first


class Views:
    """The views that the rules made in one trace.

    Args:
        trace: the trace.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace, self._steps = trace, trace.steps
        self._made: dict[int, tuple[Any, int]] = {}

    def call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Any:
        """Return the views that a call makes by its rule, or ``NotImplemented`` to leave the call
        to torch.
        """
        stack = functorch.interpreter_stack()
        if (
            stack is None
            or [each.key() for each in stack] != _IN_EACH_EXAMPLE
            or self._trace.steps is not self._steps
        ):
            return NotImplemented
        made = vmapped_ops.call_by(RULES[function], args, kwargs)
        if made is not NotImplemented:
            for each in (made,) if isinstance(made, torch.Tensor) else made:
                memory = _innermost(each)._value.storage
                self._made.setdefault(id(memory), (memory, len(self._steps)))
        return made

    def settle(self) -> None:
        """End the trace.

        Raises:
            Restart: the program wrote into the memory of a view after it was made.
        """
        for position, step in enumerate(self._steps if self._made else ()):
            for written in written_values(step) if isinstance(step, Node) else ():
                if position >= self._made.get(id(written.storage), (None, len(self._steps)))[1]:
                    raise Restart(
                        "the function writes into a slice, or into a tensor that it has sliced, "
                        "inside of vmap(grad()); write into a copy",
                        with_fewer_symbols,
                        Reason.TRANSFORMS,
                    )


def _innermost(tensor: Any) -> SymbolicTensor:
    while functorch.is_wrapped(tensor):
        tensor = functorch.unwrapped(tensor)
    assert type(tensor) is SymbolicTensor
    return tensor


# -- rules -----------------------------------------------------------------------------------------


def _alone(
    view: Callable[[torch.Tensor, int], Any], tensor: torch.Tensor
) -> tuple[Tensors, Batchable]:
    """Return the call of a view of one tensor, which is also told how many dimensions the batch
    adds in front.
    """
    return [tensor], Batchable(
        lambda given: _tensors(view(given[0], 0)),
        lambda flags, given: _tensors(view(given[0], 1)),
        takes_any=True,
    )


def _tensors(made: Any) -> Any:
    return made if isinstance(made, torch.Tensor) else tuple(made)


def _indexed(tensor: torch.Tensor, index: Any) -> tuple[Tensors, Batchable] | None:
    items = index if type(index) is tuple else (index,)
    if not all(type(each) in _BASIC for each in items) or not any(
        type(each) is slice for each in items
    ):
        return None
    return _alone(lambda given, batch: getitem(given, (*(slice(None),) * batch, *items)), tensor)


def _dim(tensor: torch.Tensor, dim: Any) -> int | None:
    rank = tensor.dim()
    return dim % rank if type(dim) is int and -rank <= dim < rank else None


def _along(name: str, default: int | None = 0) -> Rule:
    """Return the rule of a method that takes one argument and a dimension, which has a default."""
    method = getattr(torch.Tensor, name)

    def rule(
        tensor: torch.Tensor, parts: Any, dim: Any = default
    ) -> tuple[Tensors, Batchable] | None:
        along = _dim(tensor, dim)
        if along is None or isinstance(parts, torch.Tensor):
            return None
        return _alone(lambda given, batch: method(given, parts, along + batch), tensor)

    return rule


def _narrowed(
    tensor: torch.Tensor, dim: Any, start: Any, length: Any
) -> tuple[Tensors, Batchable] | None:
    along = _dim(tensor, dim)
    if along is None or isinstance(start, torch.Tensor):
        return None
    return _alone(lambda given, batch: given.narrow(along + batch, start, length), tensor)


def _on_diagonal(
    tensor: torch.Tensor, offset: Any = 0, dim1: Any = 0, dim2: Any = 1
) -> tuple[Tensors, Batchable] | None:
    one, other = _dim(tensor, dim1), _dim(tensor, dim2)
    if one is None or other is None:
        return None
    return _alone(lambda given, batch: given.diagonal(offset, one + batch, other + batch), tensor)


def _windows(
    tensor: torch.Tensor, dimension: Any, size: Any, step: Any
) -> tuple[Tensors, Batchable] | None:
    along = _dim(tensor, dimension)
    if along is None:
        return None
    return _alone(lambda given, batch: given.unfold(along + batch, size, step), tensor)


RULES: dict[Any, Rule] = {
    torch.Tensor.__getitem__: _indexed,
    **dict.fromkeys((torch.narrow, torch.Tensor.narrow), _narrowed),
    **dict.fromkeys((torch.diagonal, torch.Tensor.diagonal), _on_diagonal),
    torch.Tensor.unfold: _windows,
}
"""The rules of views, by the function that a program calls."""
for _name in ("split", "chunk", "tensor_split"):
    RULES[getattr(torch, _name)] = RULES[getattr(torch.Tensor, _name)] = _along(_name)
