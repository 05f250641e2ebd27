"""Convolutions and pools of padded tensors: the batch passes; beyond the true size is as outside in
the op.
"""

from __future__ import annotations

import math
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
    prefix,
    varies,
)
from meta_fns.padding.padded import Emitter, Padded, apply, lowered
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import lowest, masked

__all__ = [
    "adaptive_max_pooling",
    "average_pooling",
    "columns",
    "convolution",
    "max_pooling",
    "max_pooling_1d",
    "pooling",
]

_aten = torch.ops.aten


def convolution(
    emit: Emitter,
    input: Padded,
    weight: Padded,
    bias: Padded | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
) -> Padded:
    """A convolution with whole kernels and channels, or a transposed one.

    Padding of the positions becomes 0 always: a transposed convolution writes what it makes of them
    over valid results too, and kernels by transforms mix positions, so that NaN would spread.

    An infinite weight times 0 is NaN.  Transposed convolutions with one are refused when they run
    on the CPU.  Others are not: whether eager multiplies its own margin with the weights depends
    on the kernel, which it chooses by dtype, batch and length.
    """
    if weight.sizes or (bias is not None and bias.sizes):
        raise Refuse("a kernel of a convolution is padded", *weight.sizes)
    if input.ndim != weight.ndim:
        raise Refuse("a convolution without a batch dimension", *input.sizes)
    if is_padded(input.axes[1]):
        raise Refuse("channels of a convolution are padded", *padded_sizes((input.axes[1],)))
    spec = emit.results[0]
    assert spec is not None
    spatial = [dim for dim in input.padded_dims() if dim >= 2]
    for dim in spatial:
        prefix(input.axes[dim])
    filled = masked(emit, input, 0, spatial)
    if transposed:
        _need_finite(emit, weight, spatial)
    rest = [
        lowered(each) for each in (stride, padding, dilation, transposed, output_padding, groups)
    ]
    tensor = emit.call(emit.op, filled.tensor, weight.tensor, lowered(bias), *rest)
    axes = (input.axes[0], *(normal((size,)) for size in spec.sizes[1:]))
    if [capacity_of(axis) for axis in axes] != list(tensor.spec.sizes):
        raise Refuse(
            "the size of the result in memory is another one than its formula says", *input.sizes
        )
    return Padded(tensor, axes)


def _need_finite(emit: Emitter, weight: Padded, spatial: Sequence[int]) -> None:
    """Emit a check that weights are finite whose products with padding's 0 are added to valid
    results.

    There is none on devices, where a check that fails ends the process, nor for half precision,
    where eager's kernels have such products themselves.
    """
    whole = weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64)
    if not whole or all(capacity_of(weight.axes[dim]) == 1 for dim in spatial):
        return
    norm = emit.call(_aten.linalg_vector_norm.default, weight.tensor, 2)
    finite = emit.call(_aten.lt.Scalar, norm, math.inf)
    emit.call(
        _aten._assert_async.msg, finite, "a transposed convolution by weights that are not finite"
    )


def columns(
    emit: Emitter,
    self: Padded,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Padded:
    """``im2col``: ``(n, c, h, w) -> (n, c k k, windows)``, a window for each place in rows and in
    columns.
    """
    filled = _masked_positions(emit, self, 0, 2)
    counts = []
    for axis, k, d, p, s in zip(
        self.axes[-2:], kernel_size, dilation, padding, stride, strict=True
    ):
        counts.append((prefix(axis) + 2 * p - d * (k - 1) - 1) // s + 1)
    made = emit.call(emit.op, filled.tensor, kernel_size, dilation, padding, stride)
    axes = (
        *self.axes[:-3],
        normal((*self.axes[-3], kernel_size[0] * kernel_size[1])),
        normal(counts),
    )
    if list(map(capacity_of, axes)) != list(made.spec.sizes):
        raise Refuse("there are other windows in memory than their formula says", *self.sizes)
    return Padded(made, axes)


def max_pooling(emit: Emitter, self: Padded, *args: Any, **kwargs: Any) -> Any:
    """The maximum over windows of the last two dimensions, and its positions: padding is lower than
    anything.

    A window whose result is valid begins before the true end, so that it has a valid element.
    """
    _need_constant_windows(args, kwargs)
    if not any(map(is_padded, self.axes[-2:])):
        return pooling(emit, self, *args, **kwargs)
    filled = _masked_positions(emit, self, lowest(self.dtype), 2)
    values, places = apply(emit, filled, *args, **kwargs)
    axes = _pooled_axes(emit, self, values, 2)
    width = prefix(self.axes[-1])
    if varies(width):  # a position is row * width + column, of the true width
        row = emit.call(_aten.div.Tensor_mode, places, capacity(width), rounding_mode="floor")
        column = emit.call(_aten.remainder.Scalar, places, capacity(width))
        places = emit.call(
            _aten.add.Tensor, emit.call(_aten.mul.Tensor, row, emit.size(width)), column
        )
        emit.repaired(f"index: counted by rows of {width}", width)
    return Padded(values, axes), Padded(places, axes)


def max_pooling_1d(emit: Emitter, self: Padded, *args: Any, **kwargs: Any) -> Padded:
    """The maximum over windows of the last dimension, without its positions."""
    _need_constant_windows(args, kwargs)
    made = apply(emit, _masked_positions(emit, self, lowest(self.dtype), 1), *args, **kwargs)
    return Padded(made, _pooled_axes(emit, self, made, 1))


def adaptive_max_pooling(
    emit: Emitter, self: Padded, output_size: Sequence[Size]
) -> tuple[Padded | Refuse, ...]:
    """The maxima of as many windows as wanted; over padded positions of all of them, and not where
    they are.
    """
    pooled = len(output_size)
    dims = tuple(range(self.ndim - pooled, self.ndim))
    if not any(map(is_padded, self.axes[-pooled:])):
        values, places = pooling(emit, self, output_size, pooled=pooled)
        return values, places
    if any(varies(size) or size != 1 for size in output_size):
        sizes = padded_sizes(self.axes[-pooled:])
        raise Refuse(
            "where windows of padded positions begin depends on the sizes",
            *sizes,
            remedy="an output of size 1",
        )
    filled = masked(emit, self, lowest(self.dtype), dims)
    found = Padded(
        emit.call(_aten.amax.default, filled.tensor, list(dims), True),
        (*self.axes[:-pooled], *[()] * pooled),
    )
    return found, Refuse(
        "positions among padded ones are not computed", *padded_sizes(self.axes[-pooled:])
    )


def average_pooling(emit: Emitter, self: Padded, *args: Any, **kwargs: Any) -> Any:
    """The average over windows: padding is 0, as the op's own, where that counts in the divisor (or
    there is none).

    Raises: Refuse where the divisor of a window depends on where the true size ends.
    """
    _need_constant_windows(args, kwargs)
    pooled = 3 if "3d" in emit.op._schema.name else 2
    if not any(map(is_padded, self.axes[-pooled:])):
        return pooling(emit, self, *args, **kwargs)
    names = [argument.name for argument in emit.op._schema.arguments]
    given = dict(zip(names[1:], args, strict=False)) | kwargs
    margin = given.get("padding", 0)
    wide = any(margin) if isinstance(margin, (list, tuple)) else bool(margin)
    counted = given.get("count_include_pad", True) or given.get("divisor_override") is not None
    if given.get("ceil_mode", False) or (wide and not counted):
        raise Refuse(
            "the divisor of the last window depends on the size", *padded_sizes(self.axes[-pooled:])
        )
    made = apply(emit, _masked_positions(emit, self, 0, pooled), *args, **kwargs)
    return Padded(made, _pooled_axes(emit, self, made, pooled))


def _need_constant_windows(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse windows, strides and margins that vary with the sizes: at the capacity they would be
    others.
    """
    sizes = [
        size
        for each in (*args, *kwargs.values())
        for size in (each if isinstance(each, (list, tuple)) else (each,))
        if varies(size)
    ]
    if sizes:
        raise Refuse(
            "a window varies with the sizes",
            *sizes,
            remedy="pool with a mean or a maximum over the dimension",
        )


def _masked_positions(emit: Emitter, x: Padded, value: bool | int | float, pooled: int) -> Padded:
    for axis in x.axes[-pooled:]:
        prefix(axis)
    return masked(emit, x, value, range(x.ndim - pooled, x.ndim))


def _pooled_axes(emit: Emitter, x: Padded, made: Any, pooled: int) -> tuple[Axis, ...]:
    spec = emit.results[0]
    assert spec is not None
    axes = (*x.axes[:-pooled], *(normal((size,)) for size in spec.sizes[-pooled:]))
    if [capacity_of(axis) for axis in axes] != list(made.spec.sizes):
        raise Refuse(
            "the size of the result in memory is another one than its formula says", *x.sizes
        )
    return axes


def pooling(emit: Emitter, self: Padded, *args: Any, pooled: int = 0, **kwargs: Any) -> Any:
    """Pools over positions that are not padded; batch and channels may be.  ``pooled``: how many
    dimensions.
    """
    pooled = pooled or (3 if "3d" in emit.op._schema.name else 2)
    if any(map(is_padded, self.axes[-pooled:])):
        remedy = "pool with a mean over the dimension"
        raise Refuse(
            "pooled positions are padded", *padded_sizes(self.axes[-pooled:]), remedy=remedy
        )
    made = emit.call(
        emit.op,
        *map(lowered, (self, *args)),
        **{name: lowered(arg) for name, arg in kwargs.items()},
    )
    axes = self.axes[:-pooled]

    def padded(tensor: Any) -> Padded:
        return Padded(tensor, (*axes, *(normal((size,)) for size in tensor.spec.sizes[-pooled:])))

    return tuple(map(padded, made)) if isinstance(made, (list, tuple)) else padded(made)
