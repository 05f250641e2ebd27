"""The class of the error that eager raises where an op rule refuses the arguments.

A program may catch it: its handler of ``IndexError`` must run where eager runs that one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from meta_fns import TensorSpec
from meta_fns.torch_internals import OpOverload
from symshape.torch_internals import dispatch, pytree
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.float_node import FloatNode
from symshape.tracing.symbolic.nodes.int_node import IntNode

_MOST_ELEMENTS = 1 << 20
"""Elements of all arguments up to which the op is called on tensors with data: should it not refuse
them, it computes a result that nobody needs.
"""


class _UnknownError(Exception):
    """A size has no value in the example call, or a tensor is not strided."""


def kind_in_eager(
    env: ShapeEnv, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> type[Exception]:
    """Return the class of the error that ``op`` raises for the sizes of the example call.

    The op is called on zeros on the CPU. Of large arguments and of ops that draw random numbers it
    is called on meta tensors: those have no data, but some of torch's rules for them raise another
    class. ``RuntimeError`` is the answer where nothing is raised (CUDA alone lacks the kernel) and
    where a size is known only when the program runs.

    Args:
        env: the environment of the trace.
        op: the op whose rule refuses.
        args: the arguments of the op's rule: specs, sizes and numbers.
        kwargs: its keyword arguments, likewise.
    """
    if op.namespace != "aten":
        return RuntimeError
    leaves, structure = pytree.tree_flatten((list(args), dict(kwargs)))
    try:
        found = [_in_example(env, leaf) for leaf in leaves]
    except _UnknownError:
        return RuntimeError
    elements = sum(math.prod(leaf.sizes) for leaf in found if isinstance(leaf, TensorSpec))
    drawing = torch.Tag.nondeterministic_seeded in op.tags
    device = torch.device("meta" if drawing or elements > _MOST_ELEMENTS else "cpu")
    with dispatch.modes_disabled(), dispatch.DisableTorchFunction(), torch.no_grad():
        found_args, found_kwargs = pytree.tree_unflatten(
            [_on(device, leaf) for leaf in found], structure
        )
        try:
            op(*found_args, **found_kwargs)
        except Exception as error:
            return type(error)
    return RuntimeError


def _in_example(env: ShapeEnv, leaf: Any) -> Any:
    """Return an argument with the sizes of the example call.

    Raises:
        _UnknownError: the example call does not tell.
    """
    if isinstance(leaf, TensorSpec):
        if leaf.layout is not torch.strided:
            raise _UnknownError
        sizes, strides = (
            tuple(_in_example(env, size) for size in each) for each in (leaf.sizes, leaf.strides)
        )
        return TensorSpec(sizes, strides, 0, leaf.dtype, leaf.device)
    if isinstance(leaf, (IntNode, FloatNode, BoolNode)):
        found = env.hint(leaf.term)
        if found is None:
            raise _UnknownError
        return found
    return leaf


def _on(device: torch.device, leaf: Any) -> Any:
    """Return an argument as the op takes it: zeros for a spec, and ``device`` for any device."""
    if isinstance(leaf, TensorSpec):
        return torch.empty_strided(
            leaf.sizes, leaf.strides, dtype=leaf.dtype, device=device
        ).zero_()
    return device if isinstance(leaf, torch.device) else leaf
