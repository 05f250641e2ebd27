"""Recurrent layers over padded sequences: forward in time, padding comes after what is valid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.sizes import known
from meta_fns.padding.axes import is_padded, normal, padded_sizes, prefix
from meta_fns.padding.broadcasting import need_agreement
from meta_fns.padding.padded import Emitter, Padded, lowered
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import take

__all__ = ["on_cuda"]

_aten = torch.ops.aten


def on_cuda(
    emit: Emitter,
    input: Padded,  # noqa: A002 - name of the schema
    weight: Sequence[Padded],
    weight_stride0: int,
    weight_buf: Padded | None,
    hx: Padded,
    cx: Padded | None,
    *rest: Any,
) -> tuple[Padded | None, ...]:
    """The layers of cuDNN; the last state is read where the sequence really ends, for one layer.

    Raises: Refuse for padded features, packed sequences, and for a padded time with a direction that begins at its end.
    """
    names = [argument.name for argument in emit.op._schema.arguments][6:]
    given = dict(zip(names, rest, strict=True))
    if given["batch_sizes"]:
        raise Refuse("a packed sequence lists its sizes", *input.sizes, remedy="pass a padded batch and its lengths")
    if given["train"] and given["dropout"]:
        raise Refuse("it draws random numbers, as many as the tensor has elements in memory", *input.sizes)
    at, beside = (1, 0) if given["batch_first"] else (0, 1)
    time, batch = input.axes[at], input.axes[beside]
    if is_padded(input.axes[2]) or any(is_padded(axis) for axis in (hx.axes[0], hx.axes[2])):
        raise Refuse("features are padded", *padded_sizes((input.axes[2], hx.axes[2])))
    for state in (hx, cx):
        if state is not None:
            need_agreement(state.axes[1], batch)
    moves = is_padded(time)
    if moves and given["bidirectional"]:
        remedy = "layers in one direction"
        raise Refuse("the way back begins in the padding", *padded_sizes((time,)), remedy=remedy)
    if moves and not known(prefix(time) >= 1):
        raise Refuse("a sequence of no steps is not known to be avoided", *padded_sizes((time,)))
    found = emit.call(emit.op, *map(lowered, (input, weight, weight_stride0, weight_buf, hx, cx, *rest)))
    out, last, cell = (found[i] for i in range(3))
    axes = list(input.axes)
    axes[2] = normal((out.spec.sizes[2],))
    output = Padded(out, tuple(axes))
    if not moves:
        return output, Padded(last, hx.axes), None if cx is None else Padded(cell, cx.axes), None, None
    if given["num_layers"] != 1:
        return output, None, None, None, None
    place = emit.call(_aten.reshape.default, emit.call(_aten.sub.Tensor, emit.size(prefix(time)), 1), [1])
    emit.repaired(f"gather: position {prefix(time)} - 1", prefix(time))
    ended = take(emit, output, at, place)
    ended = emit.call(_aten.transpose.int, ended, 0, 1) if at else ended
    return output, Padded(ended, hx.axes), None, None, None
