"""A composite op of C++ as one node of the graph, which runs as in eager, with its own kernels and
its own backward.

For composites whose C++ decomposition asks for the value of a size.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from meta_fns.torch_internals import OpOverload
from symshape.calls.arguments import computes_as_torch_tensor
from symshape.errors import Reason, UnsupportedError
from symshape.torch_internals import functorch, pytree
from symshape.tracing.intercept.torch_functions.recurrent_ops import GRADIENTS
from symshape.tracing.symbolic.tensors import SymbolicTensor

aten = torch.ops.aten


def can_be_whole(args: Sequence[Any], *, on_cuda: bool = False, cast: bool = False) -> bool:
    """Return whether a composite of these arguments may stay one op: on the CPU, outside autocast
    and transforms.

    ``on_cuda``: also on CUDA (C++ may decompose it by looking at memory, so the graph computes
    gradients itself). ``cast``: also under autocast on the CPU.
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


@contextlib.contextmanager
def as_eager_chooses(tensors: Sequence[Any]) -> Iterator[None]:
    """Let C++ choose between an op's kernels by the sizes of a call, as in eager.

    From torch 2.15 on, attention takes sizes that depend on data for sizes that no fused kernel
    serves.
    """
    env = next((each._tracer.env for each in tensors if type(each) is SymbolicTensor), None)
    if env is None:
        yield
        return
    before, env.kernels_differ = env.kernels_differ, True
    try:
        yield
    finally:
        env.kernels_differ = before


def run_whole(op: OpOverload, args: Sequence[Any]) -> Any:
    """Return the op's outputs, recorded as one node, with the history that eager's have."""
    leaves, tree = pytree.tree_flatten(list(args))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        marked = [... if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        results = list(WholeOp.apply(op, tree, marked, *tensors))
        if len(results) > 1:
            results = [
                each if each.grad_fn is None else OneOfSeveral.apply(each) for each in results
            ]
    else:
        results = _written_down(op, args)
    return tuple(results) if len(op._schema.returns) > 1 else results[0]


class WholeOp(torch.autograd.Function):
    """The ``autograd.Function`` of a composite op as one node; its outputs have the history that
    eager's have.
    """

    @staticmethod
    def forward(
        ctx: Any, op: OpOverload, tree: pytree.TreeSpec, leaves: list[Any], *tensors: torch.Tensor
    ) -> Any:
        """Record the op once and return its outputs."""
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
        """Compute the gradients for programs that ask for them: of recurrent layers by one op, of
        others decomposed.

        Raises:
            UnsupportedError: it draws random numbers, or gradients of gradients are asked for.
        """
        if torch.is_grad_enabled() or _draws(ctx.op, ctx.leaves):
            raise UnsupportedError(
                f"the function itself computes gradients of {ctx.op}, which cannot be recomputed "
                "exactly: it applied dropout, or gradients of gradients are needed; train through "
                "torch.compile(backend='symshape')",
                reason=Reason.LOST_GRADIENTS,
            )
        needed = ctx.needs_input_grad[3:]
        if ctx.op in GRADIENTS:
            outputs = [ctx.tracer.stand_in(value) for value in ctx.values]
            others = [leaf for leaf in ctx.leaves if leaf is not ...]
            made = GRADIENTS[ctx.op](
                ctx.tracer, ctx.op, outputs, ctx.saved_tensors, others, upstream, needed
            )
            found = iter(made)
            return None, None, None, *(next(found) if wanted else None for wanted in needed)
        kind = ctx.saved_tensors[0].device.type
        # autocast around backward must not cast here
        with (
            torch.enable_grad(),
            torch.autocast(kind, enabled=False),
            as_eager_chooses(ctx.saved_tensors),
        ):
            pairs = zip(ctx.saved_tensors, needed, strict=True)
            copies = [each.detach().requires_grad_(wanted) for each, wanted in pairs]
            for each in copies:
                if type(each) is SymbolicTensor:
                    each._tracer.own.told.add(each._value)
            results = ctx.op(*_filled(ctx.tree, ctx.leaves, copies))
        tracked = [
            (out, grad)
            for out, grad in zip(_listed(results), upstream, strict=True)
            if grad is not None
        ]
        wanted_copies = [copy for copy, wanted in zip(copies, needed, strict=True) if wanted]
        found = iter(
            torch.autograd.grad(
                [out for out, _ in tracked],
                wanted_copies,
                [g for _, g in tracked],
                allow_unused=True,
            )
        )
        return None, None, None, *(next(found) if wanted else None for wanted in needed)


class OneOfSeveral(torch.autograd.Function):
    """An output of an op with several outputs, with an autograd node of its own, as in eager.

    Its hooks are called for its gradient, and not where only other outputs are differentiated.
    """

    @staticmethod
    def forward(ctx: Any, tensor: SymbolicTensor) -> SymbolicTensor:
        """Return a tensor of the same value."""
        tracer: Any = tensor._tracer
        made: SymbolicTensor = tracer.stand_in(tensor._value)
        return made

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        """Return the same gradient."""
        return upstream


def _draws(op: OpOverload, leaves: Sequence[Any]) -> bool:
    """Return whether an op draws random numbers: dropout, or dropout between layers in training."""
    names = [argument.name for argument in op._schema.arguments]
    if op is aten.dropout.default:
        return True
    if "dropout" not in names:
        return False
    behind = len(names) - names.index("dropout")  # the schema has no lists after it
    dropout, train = leaves[-behind], leaves[-behind + 1]
    return bool(train) and dropout > 0


def _listed(results: Any) -> list[Any]:
    return [results] if isinstance(results, torch.Tensor) else list(results)


def _filled(tree: pytree.TreeSpec, leaves: Sequence[Any], tensors: Sequence[torch.Tensor]) -> Any:
    """Return the arguments, with these tensors in the places marked by Ellipsis in ``leaves``."""
    given = iter(tensors)
    return pytree.tree_unflatten([next(given) if leaf is ... else leaf for leaf in leaves], tree)


def _written_down(op: OpOverload, args: Sequence[Any]) -> list[Any]:
    tensors = (leaf for leaf in pytree.tree_leaves(args) if type(leaf) is SymbolicTensor)
    return _listed(next(tensors)._tracer.dispatch(op, args, {}))
