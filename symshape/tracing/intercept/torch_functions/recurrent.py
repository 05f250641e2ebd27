"""Recurrent layers and cells recorded as one op: C++ would unroll them, which fixes length and
batch size.

(The functions of torch, and which overload each call means, were checked on 2.11 to 2.13.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from meta_fns.torch_internals import OpOverload
from symshape.torch_internals import operators, pytree
from symshape.tracing.intercept.torch_functions.recurrent_ops import under_autocast
from symshape.tracing.intercept.torch_functions.whole_composites import can_be_whole, run_whole

aten = torch.ops.aten
_LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_CELLS = ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
_SEQUENCES = ("_pack_padded_sequence", "_pad_packed_sequence")


def _overload(name: str, args: Sequence[Any]) -> OpOverload:
    """Return the overload that these positional arguments select."""
    packet = getattr(aten, name)
    if name not in _LAYERS:
        return packet.default  # type: ignore[no-any-return]
    packed = (
        isinstance(args[1], torch.Tensor)
        and isinstance(args[2], (torch.Tensor, list, tuple))
        and len(args) == 9
    )
    packed = packed and isinstance(args[3], (list, tuple))
    return packet.data if packed else packet.input  # type: ignore[no-any-return]


def _fits(name: str, args: Sequence[Any]) -> bool:
    """Return whether the single op is known to compute the same: tensors of one kind, fitting batch
    and states.
    """
    tensors = [leaf for leaf in pytree.tree_leaves(list(args)) if isinstance(leaf, torch.Tensor)]
    first = tensors[0]
    of_data = name in _LAYERS and _overload(name, args) is getattr(aten, name).data
    # On CUDA dropout between layers draws from cuDNN's own state, which a graph there does not
    # know.
    on_cuda = name in _LAYERS and not of_data and not (args[5] and args[6])
    if not can_be_whole(args, on_cuda=on_cuda, cast=name not in _CELLS):
        return False
    casts = name in _LAYERS and torch.is_autocast_enabled(first.device.type)
    if not casts and any(each.dtype not in (first.dtype, torch.int64) for each in tensors):
        return False
    if name in _SEQUENCES:
        return True
    if of_data:
        return first.dim() == 2
    states = [each for each in pytree.tree_leaves(args[1]) if isinstance(each, torch.Tensor)]
    dims = 2 if name in _CELLS else 3
    if any(each.dim() != dims for each in (first, *states)):
        return False
    if name in _CELLS:
        return all(bool(each.size(0) == first.size(0)) and each.is_contiguous() for each in states)
    return all(bool(each.size(1) == first.size(0 if args[8] else 1)) for each in states)


def _whole(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch's function as one op where that is known to be the same; other calls stay as C++
    decomposes them.
    """

    def use(*args: Any, **kwargs: Any) -> Any:
        if kwargs or (name in _LAYERS and len(args) != 9) or not _fits(name, args):
            return function(*args, **kwargs)
        op = _overload(name, args)
        if name not in _LAYERS or not torch.is_autocast_enabled("cpu"):
            return run_whole(op, args)
        found = under_autocast(op, args)
        return function(*args) if found is None else run_whole(*found)

    return use


_NAMES = (*_LAYERS, *_CELLS, *_SEQUENCES)
HANDLERS: dict[Any, Callable[..., Any]] = {
    getattr(operators.variable_functions, name): _whole(
        name, getattr(operators.variable_functions, name)
    )
    for name in _NAMES
}
"""The replacements for torch's recurrent functions, by function; ``FunctionMode`` calls these."""
