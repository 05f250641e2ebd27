"""Norms of padded tensors, where the elements that are normed together are all valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from meta_fns.core.sizes import Size
from meta_fns.padding.axes import (
    Axis,
    capacity,
    capacity_of,
    is_padded,
    normal,
    padded_sizes,
    varies,
)
from meta_fns.padding.broadcasting import need_agreement
from meta_fns.padding.padded import Emitter, Padded, apply, lowered
from meta_fns.padding.reductions import moments
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.views import reshaped

__all__ = ["batch_norm", "group_norm", "layer_norm"]

_aten = torch.ops.aten


def _need_whole(axes: Sequence[Axis], what: str) -> None:
    if any(map(is_padded, axes)):
        raise Refuse(f"{what} are padded", *padded_sizes(axes))


def layer_norm(
    emit: Emitter, input: Padded, normalized_shape: Sequence[Size], *rest: Any, **kwargs: Any
) -> Any:
    """Norms over the last dimensions, which may not be padded; statistics for each of the
    others.
    """
    kept = input.ndim - len(normalized_shape)
    _need_whole(input.axes[kept:], "elements that are normed together")
    made = apply(emit, input, normalized_shape, *rest, **kwargs)
    return _with_statistics(made, input, (*input.axes[:kept], *[()] * len(normalized_shape)))


def _with_statistics(made: Any, x: Padded, axes: tuple[Axis, ...]) -> tuple[Padded | None, ...]:
    out, *statistics = made
    fitting = [each if len(each.spec.sizes) == len(axes) else None for each in statistics]
    return (Padded(out, x.axes), *(each and Padded(each, axes) for each in fitting))


def group_norm(
    emit: Emitter,
    input: Padded,
    weight: Any,
    bias: Any,
    N: Size,
    C: Size,
    HxW: Size,
    group: int,
    eps: float,
) -> Any:
    """Norms over groups of channels and all positions; channels may not be padded, batch and
    positions may.
    """
    _need_whole(input.axes[1:2], "channels that are normed together")
    groups = (input.axes[0], (group,))
    if not any(map(is_padded, input.axes[2:])) and not varies(HxW):
        made = emit.call(
            emit.op, input.tensor, lowered(weight), lowered(bias), capacity(N), C, HxW, group, eps
        )
        return Padded(made[0], input.axes), Padded(made[1], groups), Padded(made[2], groups)
    together = normal((int(C) // group, *(size for axis in input.axes[2:] for size in axis)))
    x = reshaped(emit, input, (input.axes[0], normal((group,)), together))
    spread, average = moments(emit, x, frozenset((2,)), 0)
    inverse = emit.call(_aten.rsqrt.default, emit.call(_aten.add.Tensor, spread, eps))
    out = emit.call(_aten.mul.Tensor, emit.call(_aten.sub.Tensor, x.tensor, average), inverse)
    out = emit.call(_aten.reshape.default, out, list(input.tensor.spec.sizes))
    for parameter, op in ((weight, _aten.mul.Tensor), (bias, _aten.add.Tensor)):
        if parameter is not None:
            column = emit.call(_aten.view.default, parameter.tensor, [-1, *[1] * (input.ndim - 2)])
            out = emit.call(op, out, column)
    shape = [capacity_of(input.axes[0]), group]
    results = [out, *(emit.call(_aten.reshape.default, each, shape) for each in (average, inverse))]
    made = [emit.call(_aten._to_copy.default, each, dtype=input.dtype) for each in results]
    return Padded(made[0], input.axes), Padded(made[1], groups), Padded(made[2], groups)


def _by_own_statistics(
    emit: Emitter, input: Padded, given: Mapping[str, Any]
) -> tuple[Padded | None, ...]:
    """Norms by the statistics of each channel over all the others, as instance norms make them:
    nothing is kept.
    """
    dims = frozenset((0, *range(2, input.ndim)))
    spread, average = moments(emit, input, dims, 0)
    inverse = emit.call(_aten.rsqrt.default, emit.call(_aten.add.Tensor, spread, given["eps"]))
    out = emit.call(_aten.mul.Tensor, emit.call(_aten.sub.Tensor, input.tensor, average), inverse)
    for name, op in (("weight", _aten.mul.Tensor), ("bias", _aten.add.Tensor)):
        parameter = given.get(name)
        if parameter is not None:
            need_agreement(parameter.axes[0], input.axes[1])
            out = emit.call(
                op,
                out,
                emit.call(_aten.view.default, parameter.tensor, [-1, *[1] * (input.ndim - 2)]),
            )
    if out.spec.dtype is not input.dtype:
        out = emit.call(_aten._to_copy.default, out, dtype=input.dtype)
    saved = [
        emit.call(_aten.reshape.default, each, [capacity_of(input.axes[1])])
        for each in (average, inverse)
    ]
    results = zip(saved, emit.results[1:], strict=True)
    kept = (
        Padded(each, (input.axes[1],)) if spec and spec.dtype is each.spec.dtype else None
        for each, spec in results
    )
    return (Padded(out, input.axes), *kept)


def batch_norm(emit: Emitter, input: Padded, *args: Any, **kwargs: Any) -> Any:
    """Norms by stored statistics of each channel, which may not be padded.

    Raises: Refuse in training: statistics would be taken over the padding.
    """
    names = [argument.name for argument in emit.op._schema.arguments]
    given = dict(zip(names[1:], args, strict=False)) | kwargs
    if (
        given.get("training", False)
        and input.sizes
        and given.get("running_mean") is None
        and "running_mean" in given
    ):
        return _by_own_statistics(emit, input, given)
    if given.get("training", False) and input.sizes:
        remedy = "evaluate the model: model.eval()"
        raise Refuse(
            "batch norm in training takes statistics over the padding", *input.sizes, remedy=remedy
        )
    _need_whole(input.axes[1:2], "channels")
    made = apply(emit, input, *args, **kwargs)
    if given.get("training", False) or emit.op._schema.name != "aten::native_batch_norm":
        return (Padded(made[0], input.axes), *(None for _ in made[1:]))
    saved = (Padded(each, tuple(normal((size,)) for size in each.spec.sizes)) for each in made[1:])
    return (Padded(made[0], input.axes), *saved)  # of stored statistics, which have no padding
