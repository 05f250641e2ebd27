"""Recurrent layers under autocast as one op, which turns autocast on inside: the graph runs without
autocast.

Torch decides which operators inside the layers cast, and to which dtype. Running a tiny layer of
the same dtypes tells the dtypes of the results. (On the CPU; 2.11 to 2.13.)
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
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
