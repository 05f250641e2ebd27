"""Gradients of recurrent layers as one op, for programs that ask for them themselves: length and batch stay sizes.

Where the graph computed the layers with their history, as it does where the program did, autograd knows the gradients:
nothing is computed twice.  Where it did not (other runners), they are computed again from the layers' arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload

__all__ = ["LAYERS", "gradients"]

aten = torch.ops.aten
LAYERS = frozenset(
    getattr(getattr(aten, kind), overload)
    for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    for overload in ("input", "data")
)
"""The ops that this is for."""

_library = torch.library.Library("symshape", "FRAGMENT")
_library.define(
    "recurrent_gradients(str layer, Tensor[] outputs, Tensor[] tensors, Tensor?[] upstream, bool[] needed, "
    "bool has_biases, int num_layers, bool train, bool bidirectional, bool batch_first) -> Tensor[]"
)


@torch.library.impl(_library, "recurrent_gradients", "CompositeExplicitAutograd")
def _recurrent_gradients(
    layer: str,
    outputs: Sequence[torch.Tensor],
    tensors: Sequence[torch.Tensor],
    upstream: Sequence[torch.Tensor | None],
    needed: Sequence[bool],
    has_biases: bool,
    num_layers: int,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[torch.Tensor]:
    """The gradients of the tensors that need one, each contiguous.

    ``outputs`` are those of the layers (output, last states) for ``tensors`` (their arguments that are tensors, in
    order), ``upstream`` the gradients of these outputs, None for none.  Without dropout.
    """
    wanted = [tensor for tensor, needs in zip(tensors, needed, strict=True) if needs]
    found = _by_history(outputs, wanted, upstream)
    if found is None:
        flags: list[Any] = [has_biases, num_layers, 0.0, train, bidirectional]
        with torch.inference_mode(False), torch.enable_grad():
            copies = [_leaf(tensor, needs) for tensor, needs in zip(tensors, needed, strict=True)]
            again = _layers(layer, copies, [*flags, batch_first] if layer.endswith(".input") else flags)
        wanted = [copy for copy, needs in zip(copies, needed, strict=True) if needs]
        found = _asked(again, wanted, upstream)
    pairs = zip(found, wanted, strict=True)
    return [tensor.new_zeros(tensor.shape) if each is None else each.contiguous() for each, tensor in pairs]


@torch.library.register_fake("symshape::recurrent_gradients")  # type: ignore[untyped-decorator]
def _like_what_needs_them(
    layer: str,
    outputs: Sequence[torch.Tensor],
    tensors: Sequence[torch.Tensor],
    upstream: Sequence[torch.Tensor | None],
    needed: Sequence[bool],
    *flags: Any,
) -> list[torch.Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor, needs in zip(tensors, needed, strict=True) if needs]


_GRADIENTS: OpOverload = torch.ops.symshape.recurrent_gradients.default


def gradients(
    tracer: Any,
    op: OpOverload,
    outputs: Sequence[Any],
    tensors: Sequence[torch.Tensor],
    others: Sequence[Any],
    upstream: Sequence[torch.Tensor | None],
    needed: Sequence[bool],
) -> list[torch.Tensor]:
    """Writes the op down.

    Args:
        tracer: the trace.
        op: one of :data:`LAYERS`, without dropout.
        outputs: what it made.
        tensors: its arguments that are tensors.
        others: the rest of them.
        upstream: the gradients of its outputs; None for none.
        needed: for each tensor whether its gradient is needed.
    """
    has_biases, num_layers, _, train, bidirectional, *batch_first = others
    flags = (has_biases, num_layers, train, bidirectional, any(batch_first))
    name = f"{op._schema.name.removeprefix('aten::')}.{op._overloadname}"
    made = tracer.dispatch(_GRADIENTS, (name, list(outputs), list(tensors), list(upstream), list(needed), *flags), {})
    return list(made)


def _layers(layer: str, tensors: Sequence[torch.Tensor], flags: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    kind, overload = layer.split(".")
    op: OpOverload = getattr(getattr(aten, kind), overload)
    states = 1 if overload == "input" else 2  # behind the input, or the data and the batch sizes
    weights = states + (2 if kind == "lstm" else 1)
    state = list(tensors[states:weights]) if kind == "lstm" else tensors[states]
    made: tuple[torch.Tensor, ...] = op(*tensors[:states], state, list(tensors[weights:]), *flags)
    return made


def _leaf(tensor: torch.Tensor, needs: bool) -> torch.Tensor:
    return tensor.detach().requires_grad_(needs)


def _by_history(
    outputs: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], upstream: Sequence[torch.Tensor | None]
) -> Sequence[torch.Tensor | None] | None:
    """From the history of the outputs; None where they have none, or one that does not lead to all that is wanted."""
    tracked = all(each.grad_fn is not None for each in outputs) and all(each.requires_grad for each in wanted)
    found = _asked(outputs, wanted, upstream) if tracked else [None]
    return None if any(each is None for each in found) else found


def _asked(
    outputs: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], upstream: Sequence[torch.Tensor | None]
) -> Sequence[torch.Tensor | None]:
    pairs = [(out, grad) for out, grad in zip(outputs, upstream, strict=True) if grad is not None]
    outs, given = [out for out, _ in pairs], [grad for _, grad in pairs]
    found: Sequence[torch.Tensor | None] = torch.autograd.grad(
        outs, list(wanted), given, retain_graph=True, allow_unused=True
    )
    return found
