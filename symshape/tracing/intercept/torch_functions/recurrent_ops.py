"""Recurrent layers under autocast as one op, which turns autocast on inside: the graph runs without
autocast.

Torch decides which operators inside the layers cast, and to which dtype. Running a tiny layer of
the same dtypes tells the dtypes of the results. (On the CPU; 2.11 to 2.13.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from meta_fns.torch_internals import OpOverload
from symshape.torch_internals import dispatch, pytree
from symshape.torch_internals.dispatch import modes_disabled as _disable_current_modes
from symshape.torch_internals.library import register_fake
from symshape.tracing.symbolic.tensors import SymbolicTensor

__all__ = ["UNDER_AUTOCAST", "casting", "layers", "under_autocast"]

aten = torch.ops.aten
_library = torch.library.Library("symshape", "FRAGMENT")
_ARGUMENTS = (
    "str layer, Tensor[] tensors, bool has_biases, int num_layers, float dropout, bool train, bool "
    "bidirectional, bool batch_first, ScalarType autocast, ScalarType output, ScalarType hidden"
)
_TAGS = (torch.Tag.nondeterministic_seeded,)
_library.define(
    f"lstm_under_autocast({_ARGUMENTS}, ScalarType cells) -> (Tensor, Tensor, Tensor)", tags=_TAGS
)
_library.define(f"rnn_under_autocast({_ARGUMENTS}) -> (Tensor, Tensor)", tags=_TAGS)
_WIDTHS = (2, 3, 2)  # of a tiny layer: inputs, states, projections
# of tiny layers: sequences at each step; oneDNN serves equal lengths only
_BATCHES = ((1,), (2, 2, 2), (2, 1))
UNDER_AUTOCAST: tuple[OpOverload, OpOverload]
"""The ops for LSTMs and for the other layers.

Their first two arguments are an ATen op's name and its tensors, in order.
"""


@contextmanager
def casting(kind: str, dtype: torch.dtype | None) -> Iterator[None]:
    """Turn autocast on for a device type inside, with an empty cast cache; None turns autocast
    off.
    """
    if dtype is None and not torch.is_autocast_enabled(kind):
        yield
        return
    torch.clear_autocast_cache()
    try:
        with torch.autocast(kind, dtype, enabled=dtype is not None):
            yield
    finally:
        torch.clear_autocast_cache()


def layers(
    layer: str, tensors: Sequence[torch.Tensor], flags: Sequence[Any]
) -> tuple[torch.Tensor, ...]:
    """Return the results of an ATen op (``lstm.input``) for its tensors, in order, and its other
    arguments.
    """
    kind, overload = layer.split(".")
    op: OpOverload = getattr(getattr(aten, kind), overload)
    made: tuple[torch.Tensor, ...] = op(*_arguments(layer, tensors), *flags)
    return made


def _arguments(layer: str, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    # first the input, or the data and the batch sizes
    states = 1 if layer.endswith(".input") else 2
    lstm = layer.startswith("lstm.")
    weights = states + (2 if lstm else 1)
    state = list(tensors[states:weights]) if lstm else tensors[states]
    return *tensors[:states], state, list(tensors[weights:])


def _run(
    layer: str,
    tensors: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    autocast: torch.dtype,
    *dtypes: torch.dtype,
) -> tuple[torch.Tensor, ...]:
    flags = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    with casting(tensors[0].device.type, autocast):
        made = layers(layer, tensors, flags if layer.endswith(".input") else flags[:-1])
    if tuple(each.dtype for each in made) != dtypes:
        raise RuntimeError(
            f"{layer} under autocast made {[each.dtype for each in made]}, not {list(dtypes)}"
        )
    return made


def _likes(
    layer: str,
    tensors: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    autocast: torch.dtype,
    output: torch.dtype,
    *dtypes: torch.dtype,
) -> tuple[torch.Tensor, ...]:
    """Return empty results of the shapes that the ATen op makes, in these dtypes."""
    data, states, weights = tensors[0], *_arguments(layer, tensors)[-2:]
    width = weights[1].size(1) * (2 if bidirectional else 1)
    if batch_first:
        made = data.new_empty((data.size(1), data.size(0), width), dtype=output).transpose(0, 1)
    else:
        made = data.new_empty((*data.shape[:-1], width), dtype=output)
    listed = states if isinstance(states, list) else [states]
    pairs = zip(listed, dtypes, strict=True)
    return made, *(data.new_empty(each.shape, dtype=dtype) for each, dtype in pairs)


for _name in ("lstm_under_autocast", "rnn_under_autocast"):
    for _key in ("Autograd", "CompositeExplicitAutograd"):  # autograd sees the ops inside
        _library.impl(_name, _run, _key)
    register_fake(_library, _name, _likes)
UNDER_AUTOCAST = (
    torch.ops.symshape.lstm_under_autocast.default,
    torch.ops.symshape.rnn_under_autocast.default,
)


def under_autocast(op: OpOverload, args: Sequence[Any]) -> tuple[OpOverload, list[Any]] | None:
    """Return the op and arguments that compute ``op`` under autocast, or None: then the layer is
    decomposed.

    It is decomposed where the tensors may be cast otherwise than those of a tiny layer. This holds
    for mixed dtypes and for tensors without elements. It holds for weights that are computed, as
    autocast caches the casts of leaves and sums their gradients in its dtype. It also holds where
    dtypes depend on data (packed LSTM sequences of one length or several).
    """
    tensors = [leaf for leaf in pytree.tree_leaves(list(args)) if isinstance(leaf, torch.Tensor)]
    layer = f"{op._schema.name.removeprefix('aten::')}.{op._overloadname}"
    states, weights, *flags = args[1:] if layer.endswith(".input") else args[2:]
    kinds = [
        {each.dtype for each in group}
        for group in ((tensors[0],), pytree.tree_leaves(states), weights)
    ]
    if any(len(each) != 1 for each in kinds) or any(
        each.requires_grad and not each.is_leaf for each in weights
    ):
        return None
    if not bool(tensors[0].numel() != 0):
        return None
    autocast = torch.get_autocast_dtype(tensors[0].device.type)
    ways = 2 if flags[4] else 1
    projects = layer.startswith("lstm") and len(weights) == flags[1] * ways * (5 if flags[0] else 3)
    dtypes = _dtypes(
        layer,
        tuple(each.pop() for each in kinds),
        (*flags[:2], 0.0, *flags[3:]),
        projects,
        autocast,
    )
    if dtypes is None:
        return None
    _check(op, args)
    made = UNDER_AUTOCAST[0 if layer.startswith("lstm") else 1]
    return made, [layer, tensors, *flags, *(() if len(flags) == 6 else (False,)), autocast, *dtypes]


def _check(op: OpOverload, args: Sequence[Any]) -> None:
    """Check the sizes as the op's rule checks them."""
    tracer: Any = next(
        each for each in pytree.tree_leaves(list(args)) if type(each) is SymbolicTensor
    )._tracer

    def single(tensor: torch.Tensor) -> Any:
        if not tensor.is_floating_point():
            return tensor
        return tracer.dispatch(
            aten.empty.memory_format, (list(tensor.shape),), {"dtype": torch.float32}
        )

    with tracer.inferring():
        tracer.dispatch(op, pytree.tree_map_only(torch.Tensor, single, list(args)), {})


@functools.lru_cache(maxsize=256)
def _dtypes(
    layer: str,
    kinds: tuple[torch.dtype, ...],
    flags: tuple[Any, ...],
    projects: bool,
    autocast: torch.dtype,
) -> tuple[torch.dtype, ...] | None:
    """Return the dtypes of the results as a tiny layer on the CPU has them; None if they are not
    certain.

    They are not certain if the tiny layer fails, or if lengths or gradients change them.
    """
    try:
        with _disable_current_modes(), dispatch.DisableTorchFunction():
            found = {
                _told(_tiny(layer, kinds, flags, projects, batches), layer, flags, autocast, grad)
                for batches in _BATCHES[: 2 if layer.endswith(".input") else 3]
                for grad in (False, True)
            }
    except RuntimeError:
        return None
    return found.pop() if len(found) == 1 else None


def _told(
    tensors: Sequence[torch.Tensor],
    layer: str,
    flags: tuple[Any, ...],
    autocast: torch.dtype,
    grad: bool,
) -> tuple[torch.dtype, ...]:
    with torch.inference_mode(False), torch.set_grad_enabled(grad), casting("cpu", autocast):
        for each in tensors:
            each.requires_grad_(grad and each.is_floating_point())
        made = layers(layer, tensors, flags)
    return tuple(each.dtype for each in made)


def _tiny(
    layer: str,
    kinds: tuple[torch.dtype, ...],
    flags: tuple[Any, ...],
    projects: bool,
    batches: tuple[int, ...],
) -> list[torch.Tensor]:
    """Return the tensors of a tiny layer for ``batches``, the number of sequences at each step."""
    has_biases, num_layers, _, _, bidirectional, *first = flags
    width, hidden, projected = _WIDTHS if projects else (*_WIDTHS[:2], _WIDTHS[1])
    ways, batch = 2 if bidirectional else 1, batches[0]
    gates = hidden * {"lstm": 4, "gru": 3}.get(layer.split(".")[0], 1)
    data, state, weight = (
        functools.partial(torch.zeros, dtype=each, device="cpu") for each in kinds
    )
    if layer.endswith(".input"):
        tensors = [
            data(batch, len(batches), width) if any(first) else data(len(batches), batch, width)
        ]
    else:
        tensors = [
            data(sum(batches), width),
            torch.tensor(batches, dtype=torch.int64, device="cpu"),
        ]
    tensors += [state(num_layers * ways, batch, projected)]
    tensors += [state(num_layers * ways, batch, hidden)] if layer.startswith("lstm") else []
    for number in range(num_layers):
        for _ in range(ways):
            tensors += [
                weight(gates, projected * ways if number else width),
                weight(gates, projected),
            ]
            tensors += [weight(gates), weight(gates)] if has_biases else []
            tensors += [weight(projected, hidden)] if projects else []
    return tensors


# -- Gradients of recurrent layers and of packing and unpacking as one op: length and batch size
# stay symbolic.
#
# They serve programs that compute gradients themselves; C++ would decompose the ops, which fixes
# both sizes. Where the graph computed the layers with their history, as the program did,
# autograd has the gradients and nothing is computed twice. Other runners compute the layers
# again from their arguments.

# nodes of a history to search (0.2 ms); layers behind a longer history are computed again
_MOST_NODES = 512

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
                again = layers(
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
