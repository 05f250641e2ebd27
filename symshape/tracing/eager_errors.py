"""The class of the error that eager raises where an op rule refuses the arguments.

A program may catch it: its handler of ``IndexError`` must run where eager runs that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from meta_fns import TensorSpec
from meta_fns.torch_internals import OpOverload
from symshape.errors import ProgramError, Reason, UnsupportedError
from symshape.torch_internals import dispatch, pytree
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.float_node import FloatNode
from symshape.tracing.symbolic.nodes.int_node import IntNode

_MOST_ELEMENTS = 1 << 22
"""Elements in memory of all arguments up to which an op is tried: should it not refuse them, it
computes a result that nobody needs.
"""


class _UntriedError(Exception):
    """An op cannot be tried: sizes depend on data, arguments are large, or it has effects."""


def program_error(
    said: str, env: ShapeEnv, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> ProgramError:
    """Return the error of an op whose rule refuses the sizes, of the class that eager raises.

    The op is tried on zeros on the CPU, with the sizes of the example call. If it raises nothing
    there, or cannot be tried, the trace of a program that catches the error is refused.

    Args:
        said: the message.
        env: the environment of the trace.
        op: the op.
        args: the arguments of the op's rule: specs, sizes and numbers.
        kwargs: its keyword arguments, likewise.
    """
    try:
        _try(env, op, args, kwargs)
    except _UntriedError:
        pass
    except Exception as error:
        return ProgramError(said, kind=type(error))
    UnsupportedError(  # notes itself, which refuses the trace if the program goes on
        f"{said}, an error that the program catches and that eager may not raise",
        reason=Reason.OPERATOR,
    )
    return ProgramError(said)


def _try(env: ShapeEnv, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Call an op on zeros of the example call's sizes.

    Raises:
        _UntriedError: it cannot be called.
        Exception: of any class: what the op raises.
    """
    if op.namespace != "aten" or torch.Tag.nondeterministic_seeded in op.tags:
        raise _UntriedError
    leaves, structure = pytree.tree_flatten((list(args), dict(kwargs)))
    found = [_in_example(env, leaf) for leaf in leaves]
    specs = [leaf for leaf in found if isinstance(leaf, TensorSpec)]
    if sum(map(_span, specs)) > _MOST_ELEMENTS:
        raise _UntriedError
    with dispatch.modes_disabled(), dispatch.DisableTorchFunction(), torch.no_grad():
        made_args, made_kwargs = pytree.tree_unflatten([_on_cpu(leaf) for leaf in found], structure)
        op(*made_args, **made_kwargs)


def _in_example(env: ShapeEnv, leaf: Any) -> Any:
    """Return an argument with the sizes of the example call.

    Raises:
        _UntriedError: the example call does not tell.
    """
    if isinstance(leaf, TensorSpec):
        if leaf.layout is not torch.strided:
            raise _UntriedError
        sizes, strides = (
            tuple(_in_example(env, size) for size in each) for each in (leaf.sizes, leaf.strides)
        )
        return TensorSpec(sizes, strides, 0, leaf.dtype, leaf.device)
    if isinstance(leaf, (IntNode, FloatNode, BoolNode)):
        found = env.hint(leaf.term)
        if found is None:
            raise _UntriedError
        return found
    return leaf


def _span(spec: Any) -> int:
    """Return the number of elements from a tensor's first to its last one in memory."""
    if 0 in spec.sizes:
        return 0
    pairs = zip(spec.sizes, spec.strides, strict=True)
    return 1 + sum(int(size - 1) * int(stride) for size, stride in pairs)


def _on_cpu(leaf: Any) -> Any:
    """Return an argument as the op takes it: zeros for a spec, and the CPU for any device."""
    if isinstance(leaf, TensorSpec):
        zeros = torch.zeros(_span(leaf), dtype=leaf.dtype)
        return zeros.as_strided(leaf.sizes, leaf.strides)
    return torch.device("cpu") if isinstance(leaf, torch.device) else leaf
