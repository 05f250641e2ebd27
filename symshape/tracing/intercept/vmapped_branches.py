"""``torch.cond`` under ``torch.vmap``: both branches if each example has its own condition, else
one branch for all.

(Source: torch/_higher_order_ops/cond.py, checked on 2.13; private names of functorch are used here
alone.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.errors import Reason, UnsupportedError
from symshape.torch_internals import functorch, pytree
from symshape.torch_internals.functorch import TransformType
from symshape.torch_internals.functorch import (
    current_interpreter as retrieve_current_functorch_interpreter,
)
from symshape.torch_internals.functorch import is_batched as is_batchedtensor
from symshape.torch_internals.functorch import level_of as maybe_get_level
from symshape.torch_internals.functorch import vmap_level as vmap_increment_nesting
from symshape.torch_internals.functorch import with_batch_dim as _add_batch_dim
from symshape.torch_internals.functorch import without_batch_dim as _remove_batch_dim
from symshape.tracing.symbolic.tensors import SymbolicTensor

_Function = Callable[..., Any]


def is_transformed() -> bool:
    """Return whether a transform of ``torch.func`` is active."""
    return functorch.interpreters() is not None


def under_gradients(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the symbolic tensor inside gradient transforms, which has the same sizes; None if
    there is none.

    ``torch.vmap`` hides a dimension, so a tensor that it wraps has other sizes than the one inside.
    """
    wrapped = functorch.is_gradient_wrapper
    if not wrapped(tensor):
        return None
    while wrapped(tensor):
        tensor = functorch.unwrapped(tensor)
    return tensor if type(tensor) is SymbolicTensor else None


def cond_of_examples(
    flows: Any, cond: _Function, condition: Any, then: _Function, otherwise: _Function, ops: Any
) -> Any:
    """Compute ``cond`` inside a transform.

    Args:
        flows: the object that makes control-flow nodes of a trace.
        cond: the same function outside this transform.
        condition: the condition.
        then: a function of the operands.
        otherwise: a function of the operands, too.
        ops: the operands.

    Raises:
        UnsupportedError: torch does not support ``cond`` under this transform.
    """
    interpreter: Any = retrieve_current_functorch_interpreter()
    if interpreter.key() != TransformType.Vmap:
        raise UnsupportedError(
            "torch.cond cannot be traced under a transform of torch.func "
            f"({interpreter.key().name.lower()}); "
            "compute both branches and choose with torch.where",
            reason=Reason.TRANSFORMS,
        )
    level = interpreter.level()
    if (
        isinstance(condition, torch.Tensor)
        and is_batchedtensor(condition)
        and maybe_get_level(condition) == level
    ):
        return flows.both(condition, then, otherwise, ops)
    number, randomness = interpreter.batch_size(), interpreter.randomness()

    def of_all(function: _Function) -> _Function:
        def run(*operands: Any) -> Any:
            with vmap_increment_nesting(number, randomness) as inner:
                if inner != level:  # captured tensors would be of another level
                    raise UnsupportedError(
                        "torch.cond cannot be traced under this nesting of torch.vmap, whose "
                        "levels differ inside "
                        "the branches; compute both branches and choose with torch.where",
                        reason=Reason.TRANSFORMS,
                    )
                return pytree.tree_map(unwrapped, function(*operands))

        def unwrapped(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            of_each = is_batchedtensor(leaf) and maybe_get_level(leaf) == level
            made = _remove_batch_dim(leaf, level, number, 0)
            return made if of_each else made.clone(memory_format=torch.contiguous_format)

        run.__qualname__ = getattr(function, "__qualname__", type(function).__name__)
        return run

    with interpreter.lower():
        made = cond(condition, of_all(then), of_all(otherwise), ops)
    return pytree.tree_map_only(torch.Tensor, lambda leaf: _add_batch_dim(leaf, 0, level), made)
