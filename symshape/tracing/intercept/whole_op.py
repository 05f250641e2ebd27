"""A composite op of C++ as one node of the graph: what eager runs, with its own kernels and its own backward.

For composites that C++ takes apart by asking for the value of a size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from meta_fns.torch_internals import OpOverload
from symshape.calls.arguments import computes_as_torch_tensor
from symshape.errors import UnsupportedError
from symshape.torch_internals import functorch, pytree
from symshape.tracing.intercept.recurrent_gradients import GRADIENTS
from symshape.tracing.symbolic.tensors import SymbolicTensor

aten = torch.ops.aten


def can_be_whole(args: Sequence[Any], *, on_cuda: bool = False, cast: bool = False) -> bool:
    """Whether a composite of these arguments may stay one op: on the CPU, outside of autocast and transforms.

    ``on_cuda``: also there (C++ may take it apart by looking at memory, so gradients are the graph's own to compute).
    ``cast``: also under autocast on the CPU.
    """
    tensors = [leaf for leaf in pytree.tree_leaves(list(args)) if isinstance(leaf, torch.Tensor)]
    kind = tensors[0].device.type if tensors else "cpu"
    return (
        (kind == "cpu" or (on_cuda and kind == "cuda"))
        and ((cast and kind == "cpu") or not torch.is_autocast_enabled(kind))
        and forward_ad._current_level < 0
        and any(type(each) is SymbolicTensor for each in tensors)
        and all(
            each.device == tensors[0].device
            and (type(each) is SymbolicTensor or computes_as_torch_tensor(type(each)))
            and not functorch.is_wrapped(each)
            for each in tensors
        )
    )


def run_whole(op: OpOverload, args: Sequence[Any]) -> Any:
    """The op's outputs, written down as one node, with the history that eager's have."""
    leaves, tree = pytree.tree_flatten(list(args))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        marked = [... if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        results = list(WholeOp.apply(op, tree, marked, *tensors))
        if len(results) > 1:
            results = [each if each.grad_fn is None else OneOfSeveral.apply(each) for each in results]
    else:
        results = _written_down(op, args)
    return tuple(results) if len(op._schema.returns) > 1 else results[0]


class WholeOp(torch.autograd.Function):
    """A composite op as one node; its outputs have the history that eager's have."""

    @staticmethod
    def forward(ctx: Any, op: OpOverload, tree: pytree.TreeSpec, leaves: list[Any], *tensors: torch.Tensor) -> Any:
        """The op's outputs, written down once."""
        ctx.op, ctx.tree, ctx.leaves = op, tree, leaves
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        with torch.enable_grad():  # as the graph runs it
            made = _written_down(op, _filled(tree, leaves, tensors))
        if op in GRADIENTS:
            ctx.tracer, ctx.values = made[0]._tracer, [each._value for each in made]
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        """For programs that ask for gradients themselves: of the op taken apart; of recurrent layers by one op.

        Raises:
            UnsupportedError: it draws random numbers, or gradients of gradients are asked for.
        """
        if torch.is_grad_enabled() or _draws(ctx.op, ctx.leaves):
            raise UnsupportedError(
                f"the function computes gradients of {ctx.op} itself, which it cannot do again as it was: dropout drew "
                "its numbers, or gradients of gradients are asked for; train through torch.compile(backend='symshape')"
            )
        needed = ctx.needs_input_grad[3:]
        if ctx.op in GRADIENTS:
            outputs = [ctx.tracer.stand_in(value) for value in ctx.values]
            others = [leaf for leaf in ctx.leaves if leaf is not ...]
            made = GRADIENTS[ctx.op](ctx.tracer, ctx.op, outputs, ctx.saved_tensors, others, upstream, needed)
            found = iter(made)
            return None, None, None, *(next(found) if wanted else None for wanted in needed)
        kind = ctx.saved_tensors[0].device.type
        with torch.enable_grad(), torch.autocast(kind, enabled=False):  # as it was; what is around backward casts there
            pairs = zip(ctx.saved_tensors, needed, strict=True)
            copies = [each.detach().requires_grad_(wanted) for each, wanted in pairs]
            for each in copies:
                if type(each) is SymbolicTensor:
                    each._tracer.own.told.add(each._value)
            results = ctx.op(*_filled(ctx.tree, ctx.leaves, copies))
        tracked = [(out, grad) for out, grad in zip(_listed(results), upstream, strict=True) if grad is not None]
        wanted_copies = [copy for copy, wanted in zip(copies, needed, strict=True) if wanted]
        found = iter(
            torch.autograd.grad([out for out, _ in tracked], wanted_copies, [g for _, g in tracked], allow_unused=True)
        )
        return None, None, None, *(next(found) if wanted else None for wanted in needed)


class OneOfSeveral(torch.autograd.Function):
    """An output of an op that has several, as eager's are: with a node of its own.

    What hooks it has are called for its gradient, and not where it has none since others alone are asked for.
    """

    @staticmethod
    def forward(ctx: Any, tensor: SymbolicTensor) -> SymbolicTensor:
        """The same value."""
        tracer: Any = tensor._tracer
        made: SymbolicTensor = tracer.stand_in(tensor._value)
        return made

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        """The same gradient."""
        return upstream


def _draws(op: OpOverload, leaves: Sequence[Any]) -> bool:
    """Whether an op draws random numbers: dropout, or that between layers in training."""
    names = [argument.name for argument in op._schema.arguments]
    if op is aten.dropout.default:
        return True
    if "dropout" not in names:
        return False
    behind = len(names) - names.index("dropout")  # no lists behind it
    dropout, train = leaves[-behind], leaves[-behind + 1]
    return bool(train) and dropout > 0


def _listed(results: Any) -> list[Any]:
    return [results] if isinstance(results, torch.Tensor) else list(results)


def _filled(tree: pytree.TreeSpec, leaves: Sequence[Any], tensors: Sequence[torch.Tensor]) -> Any:
    """The arguments, with these tensors in the places of tensors (marked in ``leaves`` by Ellipsis)."""
    given = iter(tensors)
    return pytree.tree_unflatten([next(given) if leaf is ... else leaf for leaf in leaves], tree)


def _written_down(op: OpOverload, args: Sequence[Any]) -> list[Any]:
    tensors = (leaf for leaf in pytree.tree_leaves(args) if type(leaf) is SymbolicTensor)
    return _listed(next(tensors)._tracer.dispatch(op, args, {}))
