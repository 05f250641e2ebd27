"""Recurrent layers over padded sequences: forward in time, padding comes after what is valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from meta_fns.core.sizes import known
from meta_fns.padding.axes import is_padded, normal, padded_sizes, prefix
from meta_fns.padding.broadcasting import need_agreement
from meta_fns.padding.padded import Emitter, Padded, apply, lowered
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import take

__all__ = ["cell", "layers", "on_cuda"]

_aten = torch.ops.aten


def on_cuda(
    emit: Emitter,
    input: Padded,
    weight: Sequence[Padded],
    weight_stride0: int,
    weight_buf: Padded | None,
    hx: Padded,
    cx: Padded | None,
    *rest: Any,
) -> tuple[Padded | Refuse | None, ...]:
    """The layers of cuDNN; the last state is read where the sequence really ends, for one layer.

    Raises: Refuse for padded features, packed sequences, and for a padded time with a direction
    that begins at its end.
    """
    names = [argument.name for argument in emit.op._schema.arguments][6:]
    given = dict(zip(names, rest, strict=True))
    if given["batch_sizes"]:
        raise Refuse(
            "a packed sequence lists its sizes",
            *input.sizes,
            remedy="pass a padded batch and its lengths",
        )
    states = [hx] if cx is None else [hx, cx]
    _need_forward(input, states, given)
    found = emit.call(
        emit.op, *map(lowered, (input, weight, weight_stride0, weight_buf, hx, cx, *rest))
    )
    made = _results(emit, input, found, states, given)
    return (*made, *[None] * (5 - len(made)))


def layers(
    emit: Emitter, input: Padded, hx: Any, params: Sequence[Padded], *rest: Any
) -> tuple[Padded | Refuse | None, ...]:
    """``lstm``, ``gru`` and plain recurrent layers, kept as one op, likewise."""
    names = [argument.name for argument in emit.op._schema.arguments][3:]
    given = dict(zip(names, rest, strict=True))
    states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
    _need_forward(input, states, given)
    found = emit.call(emit.op, *map(lowered, (input, hx, params, *rest)))
    return _results(emit, input, found, states, given)


def cell(
    emit: Emitter,
    input_gates: Padded,
    hidden_gates: Padded,
    state: Padded,
    input_bias: Padded | None = None,
    hidden_bias: Padded | None = None,
) -> tuple[Padded, ...]:
    """One step of an LSTM or a GRU from its gates (CUDA), each row for itself.

    Raises: Refuse for padded features.
    """
    features = [each.axes[1] for each in (input_gates, hidden_gates, state)]
    if any(map(is_padded, features)):
        raise Refuse("features are padded", *padded_sizes(features))
    for each in (hidden_gates, state):
        need_agreement(each.axes[0], input_gates.axes[0])
    found = apply(emit, input_gates, hidden_gates, state, input_bias, hidden_bias)
    states, room = [Padded(each, state.axes) for each in found[:-1]], found[-1]
    return (*states, Padded(room, (state.axes[0], normal((room.spec.sizes[1],)))))


def _need_forward(input: Padded, states: Sequence[Padded], given: Mapping[str, Any]) -> None:
    """Raise Refuse where padding could reach what is valid."""
    if given["train"] and given["dropout"]:
        raise Refuse(
            "it draws random numbers, as many as the tensor has elements in memory", *input.sizes
        )
    at, beside = _places(given)
    time, features = (
        input.axes[at],
        (input.axes[2], *(each.axes[place] for each in states for place in (0, 2))),
    )
    if any(map(is_padded, features)):
        raise Refuse("features are padded", *padded_sizes(features))
    for state in states:
        need_agreement(state.axes[1], input.axes[beside])
    if not is_padded(time):
        return
    if given["bidirectional"]:
        remedy = "layers in one direction"
        raise Refuse("the way back begins in the padding", *padded_sizes((time,)), remedy=remedy)
    if not known(prefix(time) >= 1):
        raise Refuse("a sequence of no steps is not known to be avoided", *padded_sizes((time,)))


def _places(given: Mapping[str, Any]) -> tuple[int, int]:
    """The dimensions of time and batch."""
    return (1, 0) if given["batch_first"] else (0, 1)


def _results(
    emit: Emitter,
    input: Padded,
    found: Sequence[Any],
    states: Sequence[Padded],
    given: Mapping[str, Any],
) -> tuple[Padded | Refuse | None, ...]:
    """Return the output and the last states; a ``Refuse`` stands for a state that is not known."""
    at, _ = _places(given)
    time = input.axes[at]
    axes = list(input.axes)
    axes[2] = normal((found[0].spec.sizes[2],))
    output = Padded(found[0], tuple(axes))
    if not is_padded(time):
        return output, *(
            Padded(last, state.axes) for last, state in zip(found[1:], states, strict=False)
        )
    name = emit.op._schema.name.removeprefix("aten::")
    if given["num_layers"] != 1:
        remedy = "one layer a call, or read the output instead of the states"
        unknown = Refuse(
            f"the last states of {name} of several layers are those at the capacity",
            *time,
            remedy=remedy,
        )
        return output, *([unknown] * len(states))
    place = emit.call(
        _aten.reshape.default, emit.call(_aten.sub.Tensor, emit.size(prefix(time)), 1), [1]
    )
    emit.repaired(f"gather: position {prefix(time)} - 1", prefix(time))
    ended = take(emit, output, at, place)
    ended = emit.call(_aten.transpose.int, ended, 0, 1) if at else ended
    remedy = "read the output, or the last h, instead of the last c"
    cell = Refuse(f"the last c of {name} is that at the capacity", *time, remedy=remedy)
    return output, Padded(ended, states[0].axes), *([cell] * (len(states) - 1))
