"""Functions of singular values or eigenvalues without vectors, for which LAPACK runs another
algorithm than with them.

C++ also computes the vectors where a tensor may need gradients, and assumes that of any tensor
subclass such as ours. Source: ``isTensorSubclassLike`` in
aten/src/ATen/native/BatchLinearAlgebra.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from symshape.torch_internals.dispatch import TorchDispatchMode
from symshape.tracing.intercept.torch_functions.decompositions import (
    is_taken_apart,
    take_apart,
    taken_apart_on,
)
from symshape.tracing.symbolic.tensors import METADATA, SymbolicTensor

aten = torch.ops.aten
_FUNCTIONS: tuple[Any, ...] = (
    *(torch.linalg.svdvals, torch.linalg.eigvals, torch.linalg.eigvalsh),
    *(torch.linalg.matrix_norm, torch.linalg.norm, torch.linalg.cond, torch.linalg.matrix_rank),
    *(torch.norm, torch.Tensor.norm, torch.nuclear_norm),
)


class _ValuesAlone(TorchDispatchMode):
    """A dispatch mode in which decompositions compute no vectors; the placeholders for them are
    never read.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # no Dynamo frame hook around each op

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten._linalg_svd.default:
            return func(args[0], False, False, **kwargs or {})
        if func is aten._linalg_eigh.default:
            return func(*args[:2], compute_v=False)
        if func is aten.linalg_eig.default:
            return aten._linalg_eigvals.default(args[0]), args[0]
        kinds = taken_apart_on(func)
        # in inference mode
        if kinds and func not in METADATA and is_taken_apart(kinds, args, kwargs):
            with self:
                return take_apart(func, args, kwargs or {})
        return func(*args, **kwargs or {})


def _alone(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(tensor: SymbolicTensor, *args: Any, **kwargs: Any) -> Any:
        tracked = tensor.requires_grad and torch.is_grad_enabled()
        if tracked or forward_ad._current_level >= 0:
            return function(tensor, *args, **kwargs)
        with _ValuesAlone():
            return function(tensor, *args, **kwargs)

    return compute


HANDLERS: dict[Any, Callable[..., Any]] = {each: _alone(each) for each in _FUNCTIONS}
"""The replacements for these functions, by function; ``FunctionMode`` calls these."""
