"""Gradients of recurrent layers and of packing and unpacking as one op: length and batch size stay
symbolic.

They serve programs that compute gradients themselves; C++ would decompose the ops, which fixes both
sizes. Where the graph computed the layers with their history, as the program did, autograd has the
gradients and nothing is computed twice. Other runners compute the layers again from their
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from meta_fns.torch_internals import OpOverload
from symshape.torch_internals.library import register_fake
from symshape.tracing.intercept.torch_functions.recurrent_autocast import UNDER_AUTOCAST, casting
from symshape.tracing.intercept.torch_functions.recurrent_autocast import layers as _layers

__all__ = ["GRADIENTS"]

aten = torch.ops.aten
# nodes of a history to search (0.2 ms); layers behind a longer history are computed again
_MOST_NODES = 512
_library = torch.library.Library("symshape", "FRAGMENT")
_library.define(
    "recurrent_gradients(str layer, Tensor[] outputs, Tensor[] tensors, Tensor?[] upstream, bool[] "
    "needed, bool has_biases, int num_layers, bool train, bool bidirectional, bool batch_first, "
    "ScalarType? autocast=None, ScalarType? casts=None) -> Tensor[]"
)
_library.define(
    "unpacked_gradient(Tensor upstream, Tensor lengths, Tensor data, bool batch_first) -> Tensor"
)
_library.define(
    "packed_gradient(Tensor upstream, Tensor batch_sizes, Tensor padded, bool batch_first) -> "
    "Tensor"
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
    autocast: torch.dtype | None = None,
    casts: torch.dtype | None = None,
) -> list[torch.Tensor]:
    """Return the gradients of the tensors that need one, each contiguous.

    ``outputs`` are the results of the layers (output, last states) for ``tensors``, their tensor
    arguments in order. ``upstream`` are the gradients of these outputs, None where there is none.
    Dropout is not supported. A write to a tensor since then counts: backward raises, as in eager,
    where it needs the old value. ``autocast`` is the dtype of the autocast around the layers,
    ``casts`` of that around their backward.
    """
    kind = tensors[0].device.type
    wanted = [tensor for tensor, needs in zip(tensors, needed, strict=True) if needs]
    with casting(kind, casts):
        found = _by_history(outputs, wanted, upstream)
    if found is None:
        flags: list[Any] = [has_biases, num_layers, 0.0, train, bidirectional]
        with torch.inference_mode(False), torch.enable_grad():
            copies = [_leaf(tensor, needs) for tensor, needs in zip(tensors, needed, strict=True)]
            with casting(kind, autocast):
                again = _layers(
                    layer, copies, [*flags, batch_first] if layer.endswith(".input") else flags
                )
        torch.autograd.graph.increment_version(
            [made for made, out in zip(again, outputs, strict=True) if out._version]
        )
        wanted = [copy for copy, needs in zip(copies, needed, strict=True) if needs]
        with casting(kind, casts):
            found = _asked(again, wanted, upstream)
    pairs = zip(found, wanted, strict=True)
    return [
        tensor.new_zeros(tensor.shape) if each is None else each.contiguous()
        for each, tensor in pairs
    ]


def _like_what_needs_them(
    layer: str,
    outputs: Sequence[torch.Tensor],
    tensors: Sequence[torch.Tensor],
    upstream: Sequence[torch.Tensor | None],
    needed: Sequence[bool],
    *flags: Any,
) -> list[torch.Tensor]:
    return [
        tensor.new_empty(tensor.shape)
        for tensor, needs in zip(tensors, needed, strict=True)
        if needs
    ]


register_fake(_library, "recurrent_gradients", _like_what_needs_them)


@torch.library.impl(_library, "unpacked_gradient", "CompositeExplicitAutograd")
def _unpacked_gradient(
    upstream: torch.Tensor, lengths: torch.Tensor, data: torch.Tensor, batch_first: bool
) -> torch.Tensor:
    """Return the gradient of a packed sequence's data, from that of the padded tensor and the
    lengths of its rows.
    """
    made: torch.Tensor = aten._pack_padded_sequence.default(upstream, lengths, batch_first)[0]
    return made.view(data.shape)


@torch.library.impl(_library, "packed_gradient", "CompositeExplicitAutograd")
def _packed_gradient(
    upstream: torch.Tensor, batch_sizes: torch.Tensor, padded: torch.Tensor, batch_first: bool
) -> torch.Tensor:
    """Return the gradient of the padded tensor, from that of the packed sequence's data and its
    batch sizes.
    """
    shape = list(padded.shape)
    made: torch.Tensor = aten._pack_padded_sequence_backward.default(
        upstream, shape, batch_sizes, batch_first
    )
    return made.contiguous()


def _like_the_third(
    upstream: torch.Tensor, other: torch.Tensor, like: torch.Tensor, batch_first: bool
) -> torch.Tensor:
    return like.new_empty(like.shape)


for _name in ("unpacked_gradient", "packed_gradient"):
    register_fake(_library, _name, _like_the_third)


def _of_layers(
    tracer: Any,
    op: OpOverload,
    outputs: Sequence[Any],
    tensors: Sequence[torch.Tensor],
    others: Sequence[Any],
    upstream: Sequence[torch.Tensor | None],
    needed: Sequence[bool],
) -> list[torch.Tensor | None]:
    cast = op in UNDER_AUTOCAST
    layer = others[0] if cast else f"{op._schema.name.removeprefix('aten::')}.{op._overloadname}"
    has_biases, num_layers, _, train, bidirectional, *rest = others[1:] if cast else others
    flags = (has_biases, num_layers, train, bidirectional, bool(rest and rest[0]))
    dtypes = (rest[1] if cast else None, _autocast_on(tensors[0].device.type))
    unused = _projections_for_nobody(layer, tensors, flags, upstream)
    asked = [needs and position not in unused for position, needs in enumerate(needed)]
    given = (layer, list(outputs), list(tensors), list(upstream), asked, *flags, *dtypes)
    made = iter(tracer.dispatch(torch.ops.symshape.recurrent_gradients.default, given, {}))
    return [
        next(made) if asks else None for asks, needs in zip(asked, needed, strict=True) if needs
    ]


def _autocast_on(kind: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def _projections_for_nobody(
    layer: str,
    tensors: Sequence[torch.Tensor],
    flags: Sequence[Any],
    upstream: Sequence[torch.Tensor | None],
) -> range:
    """Return the positions of the last layer's projections without a gradient: only cells are used,
    after one step.
    """
    has_biases, num_layers, _, bidirectional, batch_first = flags
    packed, ways, each = layer.endswith(".data"), 2 if bidirectional else 1, 5 if has_biases else 3
    weights = 4 if packed else 3  # after the input (data and batch sizes) and two states
    cells = layer.startswith("lstm.") and upstream[0] is None and upstream[1] is None
    if not cells or len(tensors) != weights + num_layers * ways * each:
        return range(0)
    steps = tensors[1].size(0) if packed else tensors[0].size(1 if batch_first else 0)
    return (
        range(len(tensors) - (ways - 1) * each - 1, len(tensors), each) if steps == 1 else range(0)
    )


def _of_sequences(
    tracer: Any,
    op: OpOverload,
    outputs: Sequence[Any],
    tensors: Sequence[torch.Tensor],
    others: Sequence[Any],
    upstream: Sequence[torch.Tensor | None],
    needed: Sequence[bool],
) -> list[torch.Tensor | None]:
    del needed  # only the first tensor can need one
    packs = op is aten._pack_padded_sequence.default
    made = torch.ops.symshape.packed_gradient if packs else torch.ops.symshape.unpacked_gradient
    return [tracer.dispatch(made.default, (upstream[0], outputs[1], tensors[0], others[0]), {})]


Gradients = Callable[..., list[torch.Tensor | None]]
"""A function that records the gradients of an op and returns one for each tensor that needs it
(None: no gradient).

Arguments: the tracer, the op, its outputs, the tensors among its arguments, the other arguments,
the gradients of the outputs (None for none), and which tensors need a gradient.
"""
GRADIENTS: dict[OpOverload, Gradients] = {
    **{
        getattr(getattr(aten, kind), overload): _of_layers
        for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")
        for overload in ("input", "data")
    },
    **dict.fromkeys(UNDER_AUTOCAST, _of_layers),
    aten._pack_padded_sequence.default: _of_sequences,
    aten._pad_packed_sequence.default: _of_sequences,
}
"""The gradient functions by op, for layers without dropout."""


def _leaf(tensor: torch.Tensor, needs: bool) -> torch.Tensor:
    return tensor.detach().requires_grad_(needs)


def _by_history(
    outputs: Sequence[torch.Tensor],
    wanted: Sequence[torch.Tensor],
    upstream: Sequence[torch.Tensor | None],
) -> Sequence[torch.Tensor | None] | None:
    """Return the gradients from the history of the outputs; None where the history may give
    something else, or nothing.

    Autograd continues behind a wanted tensor if that leads to another wanted one: the same layers
    applied twice, or a state made from a weight. Gradients that arrive that way belong to other
    steps of the program.
    """
    tracked = all(each.grad_fn is not None for each in outputs) and all(
        each.requires_grad for each in wanted
    )
    tracked = tracked and not any(
        each._backward_hooks for each in (*outputs, *wanted)
    )  # which the program's steps have
    # in their history, too; autograd is asked for its errors
    written = any(each._version for each in outputs)
    found = _asked(outputs, wanted, upstream) if tracked and (written or _apart(wanted)) else [None]
    return None if written or any(each is None for each in found) else found


def _apart(wanted: Sequence[torch.Tensor]) -> bool:
    """Return whether the wanted tensors are distinct, and no history leads from one to another.

    Longer histories than the limit count as leading there.
    """
    leaves = {id(each) for each in wanted if each.grad_fn is None}
    made = {(each.grad_fn, each.output_nr) for each in wanted if each.grad_fn is not None}
    if len(leaves) + len(made) != len(wanted):
        return False
    waiting = list({node for node, _ in made})
    seen = set(waiting)
    while waiting:
        for node, number in waiting.pop().next_functions:
            if (
                (node, number) in made
                or id(getattr(node, "variable", None)) in leaves
                or len(seen) > _MOST_NODES
            ):
                return False
            if node is not None and node not in seen:
                seen.add(node)
                waiting.append(node)
    return True


def _asked(
    outputs: Sequence[torch.Tensor],
    wanted: Sequence[torch.Tensor],
    upstream: Sequence[torch.Tensor | None],
) -> Sequence[torch.Tensor | None]:
    pairs = [(out, grad) for out, grad in zip(outputs, upstream, strict=True) if grad is not None]
    outs, given = [out for out, _ in pairs], [grad for _, grad in pairs]
    found: Sequence[torch.Tensor | None] = torch.autograd.grad(
        outs, list(wanted), given, retain_graph=True, allow_unused=True
    )
    return found
