"""Convolutions of padded tensors: the batch passes, and positions beyond the true size are zeros, as in the op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meta_fns.core.sizes import Size
from meta_fns.padding.axes import capacity_of, is_padded, normal, padded_sizes, prefix
from meta_fns.padding.padded import Emitter, Padded, lowered
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import masked

__all__ = ["convolution", "pooling"]


def convolution(
    emit: Emitter,
    input: Padded,  # noqa: A002 - name of the schema
    weight: Padded,
    bias: Padded | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
) -> Padded:
    """A convolution with whole kernels and channels.

    Padding of the positions becomes 0 always: kernels by transforms mix positions, so that NaN would spread.
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
    if transposed and spatial:
        written = padded_sizes(input.axes[2:])
        raise Refuse("a transposed convolution writes padding over valid positions", *written)
    for dim in spatial:
        prefix(input.axes[dim])
    filled = masked(emit, input, 0, spatial)
    rest = [lowered(each) for each in (stride, padding, dilation, transposed, output_padding, groups)]
    tensor = emit.call(emit.op, filled.tensor, weight.tensor, lowered(bias), *rest)
    axes = (input.axes[0], *(normal((size,)) for size in spec.sizes[1:]))
    if [capacity_of(axis) for axis in axes] != list(tensor.spec.sizes):
        raise Refuse("the size of the result in memory is another one than its formula says", *input.sizes)
    return Padded(tensor, axes)


def pooling(emit: Emitter, self: Padded, *args: Any, **kwargs: Any) -> Any:
    """Pools over positions that are not padded; batch and channels may be."""
    pooled = 3 if "3d" in emit.op._schema.name else 2
    if any(map(is_padded, self.axes[-pooled:])):
        remedy = "pool with a mean over the dimension"
        raise Refuse("pooled positions are padded", *padded_sizes(self.axes[-pooled:]), remedy=remedy)
    made = emit.call(emit.op, *map(lowered, (self, *args)), **{name: lowered(arg) for name, arg in kwargs.items()})
    axes = self.axes[:-pooled]

    def padded(tensor: Any) -> Padded:
        return Padded(tensor, (*axes, *(normal((size,)) for size in tensor.spec.sizes[-pooled:])))

    return tuple(map(padded, made)) if isinstance(made, (list, tuple)) else padded(made)
