"""Gradients of padded tensors: what padding would add to a sum becomes 0, and rows of padding stay
padding.

A gradient that is summed over a padded dimension gets 0 there on every side: 0 times NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.dims import wrap_dim
from meta_fns.core.sizes import Size
from meta_fns.padding import index_writes
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
from meta_fns.padding.broadcasting import broadcast_axes, need_agreement
from meta_fns.padding.fills import GARBAGE, ZERO
from meta_fns.padding.losses import classes
from meta_fns.padding.padded import Emitter, Padded, lowered
from meta_fns.padding.rearranging import diagonal_scatter
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import count, index_in, masked, relaid

__all__ = [
    "batch_norm",
    "convolution",
    "diagonal",
    "embedding",
    "first_alone",
    "group_norm",
    "halved",
    "layer_norm",
    "loss_by_element",
    "max_pooling",
    "negative_log_likelihood",
    "pooling",
    "resampling",
    "select",
    "slice_of",
    "softmax",
]

_aten = torch.ops.aten
_MEAN, _SUM = 1, 2


def _zeros(emit: Emitter, like: Padded, axes: tuple[Axis, ...]) -> Padded:
    tensor = emit.call(_aten.new_zeros.default, like.tensor, list(map(capacity_of, axes)))
    return Padded(tensor, axes, ZERO, ZERO)


def _true_size(emit: Emitter, dim: int) -> Size:
    spec = emit.results[0]
    assert spec is not None
    return spec.sizes[dim]


def slice_of(
    emit: Emitter,
    grad_output: Padded,
    input_sizes: Sequence[Size],
    dim: int,
    start: Size,
    end: Size,
    step: Size,
) -> Padded:
    """The gradient of a slice: zeros with the gradient where the slice was."""
    at = wrap_dim(dim, grad_output.ndim)
    axes = (*grad_output.axes[:at], normal((_true_size(emit, at),)), *grad_output.axes[at + 1 :])
    return index_writes.slice_scatter(
        emit, _zeros(emit, grad_output, axes), grad_output, at, start, end, step
    )


def select(
    emit: Emitter, grad_output: Padded, input_sizes: Sequence[Size], dim: int, index: Size
) -> Padded:
    """The gradient of one position: zeros with the gradient there."""
    at = wrap_dim(dim, grad_output.ndim + 1)
    axes = (*grad_output.axes[:at], normal((_true_size(emit, at),)), *grad_output.axes[at:])
    return index_writes.select_scatter(
        emit, _zeros(emit, grad_output, axes), grad_output, at, index
    )


def diagonal(
    emit: Emitter,
    grad_output: Padded,
    input_sizes: Sequence[Size],
    offset: int,
    dim1: int,
    dim2: int,
) -> Padded:
    """The gradient of a diagonal: zeros with the gradient there."""
    axes = list(grad_output.axes[:-1])
    for dim in sorted(wrap_dim(each, grad_output.ndim + 1) for each in (dim1, dim2)):
        axes.insert(dim, normal((_true_size(emit, dim),)))
    return diagonal_scatter(
        emit, _zeros(emit, grad_output, tuple(axes)), grad_output, offset, dim1, dim2
    )


def embedding(
    emit: Emitter,
    grad_output: Padded,
    indices: Padded,
    num_weights: Size,
    padding_idx: Size,
    scale_grad_by_freq: bool,
) -> Padded:
    """The gradient of rows of a matrix: the rows of padding add 0 to the first one.

    Raises: Refuse where rows are counted, which counts padding too.
    """
    if varies(num_weights) or varies(padding_idx) or (scale_grad_by_freq and indices.sizes):
        raise Refuse("rows of a padded index are counted", *indices.sizes)
    if grad_output.ndim != indices.ndim + 1:
        raise Refuse(
            "the gradient has other dimensions than its index", *grad_output.sizes, *indices.sizes
        )
    for own, other in zip(grad_output.axes, indices.axes, strict=False):
        need_agreement(own, other)
    rows = masked(emit, grad_output, 0, range(indices.ndim))
    found = index_in(emit, indices, (num_weights,), wraps=False)
    tensor = emit.call(
        emit.op, rows.tensor, found.tensor, num_weights, padding_idx, scale_grad_by_freq
    )
    return Padded(tensor, (normal((num_weights,)), grad_output.axes[-1]))


def layer_norm(
    emit: Emitter, grad_out: Padded, input: Padded, normalized_shape: Sequence[Size], *rest: Any
) -> tuple[Padded | None, ...]:
    """The gradients of a norm over the last dimensions, which may not be padded; parameters sum
    over the others.
    """
    names = [argument.name for argument in emit.op._schema.arguments][3:]
    given = dict(zip(names, rest, strict=True))
    kept = input.ndim - len(normalized_shape)
    if any(map(is_padded, input.axes[kept:])):
        raise Refuse(
            "elements that are normed together are padded", *padded_sizes(input.axes[kept:])
        )
    saved = {name: each for name, each in given.items() if name in ("mean", "rstd")}
    for each in (grad_out, *saved.values()):
        for own, other in zip(each.axes[:kept], input.axes[:kept], strict=True):
            need_agreement(own, other)
    tensors = [grad_out, input, *saved.values()]
    if any(given["output_mask"][1:]):
        tensors = [masked(emit, each, 0, range(kept)) for each in tensors]
    handles = [each.tensor for each in tensors]
    given.update(zip(saved, handles[2:], strict=True))
    made = emit.call(
        emit.op, *handles[:2], normalized_shape, *(lowered(each) for each in given.values())
    )
    axes = (input.axes, input.axes[kept:], input.axes[kept:])
    return tuple(each and Padded(each, own) for each, own in zip(made, axes, strict=False))


def batch_norm(
    emit: Emitter,
    grad_out: Padded,
    input: Padded,
    weight: Padded | None,
    running_mean: Padded | None,
    running_var: Padded | None,
    save_mean: Padded | None,
    save_invstd: Padded | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Padded | None, ...]:
    """The gradients of a norm by stored statistics of each channel, which may not be padded.

    Raises: Refuse in training: statistics would be taken over the padding.
    """
    if train:
        raise Refuse(
            "batch norm in training takes statistics over the padding",
            *input.sizes,
            *grad_out.sizes,
        )
    if is_padded(input.axes[1]):
        raise Refuse("channels are padded", *padded_sizes(input.axes[1:2]))
    for own, other in zip(grad_out.axes, input.axes, strict=True):
        need_agreement(own, other)
    if any(output_mask[1:]):
        grad_out, input = masked(emit, grad_out, 0), masked(emit, input, 0)
    rest = map(
        lowered,
        (weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask),
    )
    made = emit.call(emit.op, grad_out.tensor, input.tensor, *rest)
    axes = (input.axes, input.axes[1:2], input.axes[1:2])
    return tuple(each and Padded(each, own) for each, own in zip(made, axes, strict=True))


def group_norm(
    emit: Emitter,
    grad_out: Padded,
    input: Padded,
    mean: Padded,
    rstd: Padded,
    weight: Padded | None,
    N: Size,
    C: Size,
    HxW: Size,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[Padded | None, ...]:
    """The gradients of a norm over groups of channels and all positions, of which only the batch
    may be padded.
    """
    if any(map(is_padded, input.axes[1:])) or varies(HxW) or len(input.axes[0]) > 1:
        raise Refuse("elements that are normed together are padded", *padded_sizes(input.axes))
    for each in (grad_out, mean, rstd):
        need_agreement(each.axes[0], input.axes[0])
    tensors = [grad_out, input, mean, rstd]
    if any(output_mask[1:]):
        tensors = [masked(emit, each, 0, (0,)) for each in tensors]
    handles = [each.tensor for each in tensors]
    made = emit.call(emit.op, *handles, lowered(weight), capacity(N), C, HxW, group, output_mask)
    axes = (input.axes, input.axes[1:2], input.axes[1:2])
    return tuple(each and Padded(each, own) for each, own in zip(made, axes, strict=True))


def softmax(
    emit: Emitter, grad_output: Padded, output: Padded, dim: int, input_dtype: torch.dtype
) -> Padded:
    """The gradient of softmax and of its logarithm: padding along the dimension adds nothing."""
    for own, other in zip(grad_output.axes, output.axes, strict=True):
        need_agreement(own, other)
    over = (wrap_dim(dim, output.ndim),) if output.ndim else ()
    pair = (masked(emit, each, 0, over).tensor for each in (grad_output, output))
    return Padded(emit.call(emit.op, *pair, dim, input_dtype), output.axes)


def loss_by_element(
    emit: Emitter, grad_output: Padded, self: Padded, target: Padded, *rest: Any
) -> Padded:
    """The gradient of a loss of each pair of elements; where it is a mean, divided by how many are
    valid.
    """
    arguments = emit.op._schema.arguments[3:]
    given = {
        argument.name: argument.default_value
        for argument in arguments
        if argument.has_default_value()
    }
    given.update(zip((argument.name for argument in arguments), rest, strict=False))
    operands = [each for each in (grad_output, self, target, *rest) if isinstance(each, Padded)]
    axes = broadcast_axes([each.axes for each in operands])
    mean = given["reduction"] == _MEAN
    plain = [
        lowered(_SUM if mean and argument.name == "reduction" else given[argument.name])
        for argument in arguments
    ]
    if emit.op._schema.name == "aten::binary_cross_entropy_backward":  # as in the loss itself
        self, target = masked(emit, self, 0), masked(emit, target, 0)
    tensor = emit.call(emit.op, grad_output.tensor, self.tensor, target.tensor, *plain)
    if mean:
        tensor = emit.call(_aten.div.Tensor, tensor, count(emit, self.axes))
    return Padded(tensor, axes)


def negative_log_likelihood(
    emit: Emitter,
    grad_output: Padded,
    self: Padded,
    target: Padded,
    weight: Padded | None,
    reduction: int,
    ignore_index: Size,
    total_weight: Padded,
) -> Padded:
    """The gradient of ``nll_loss``: rows of padding have the class that is ignored, whose gradient
    is 0.
    """
    self, filled, weight = classes(emit, self, target, weight, ignore_index, refuses=False)
    for dim, axis in enumerate((self.axes[0], *self.axes[2:]) if grad_output.ndim else ()):
        grad_output = relaid(emit, grad_output, dim, axis)
    rest = (lowered(weight), reduction, ignore_index, total_weight.tensor)
    tensor = emit.call(emit.op, grad_output.tensor, self.tensor, filled.tensor, *rest)
    return Padded(tensor, self.axes, GARBAGE if is_padded(self.axes[1]) else ZERO)


def convolution(
    emit: Emitter,
    grad_output: Padded,
    input: Padded,
    weight: Padded,
    bias_sizes: Sequence[Size] | None,
    *rest: Any,
) -> tuple[Padded | None, ...]:
    """The gradients of a convolution: beyond the true sizes both its input and its gradient are
    0.

    An infinite number times 0 is NaN, at the true end and in the gradient of weights: eager has an
    infinite one there. A check that all three are finite took 9 to 25 % of a call on the CPU.
    """
    output_mask = rest[-1]
    if weight.sizes or input.ndim != weight.ndim or is_padded(input.axes[1]):
        raise Refuse(
            "a kernel, channels or the only dimension of a convolution are padded",
            *weight.sizes,
            *input.sizes,
        )
    spatial = [dim for dim in input.padded_dims() | grad_output.padded_dims() if dim >= 2]
    for dim in spatial:
        prefix(input.axes[dim]), prefix(grad_output.axes[dim])
    need_agreement(grad_output.axes[0], input.axes[0])
    given, gradient = masked(emit, input, 0), masked(emit, grad_output, 0)
    plain = [lowered(each) for each in rest]
    made = emit.call(emit.op, gradient.tensor, given.tensor, weight.tensor, bias_sizes, *plain)
    axes = (input.axes, weight.axes, grad_output.axes[1:2])
    pairs = zip(made, axes, output_mask, strict=True)
    return tuple(Padded(each, own) if wanted else None for each, own, wanted in pairs)


def halved(emit: Emitter, grad_output: Padded, self: Padded, dim: int) -> Padded:
    """The gradient of ``glu`` along a dimension without padding."""
    if is_padded(self.axes[wrap_dim(dim, self.ndim)]):
        raise Refuse(
            "where the second half of a padded dimension begins depends on the sizes", *self.sizes
        )
    for at, (own, other) in enumerate(zip(grad_output.axes, self.axes, strict=True)):
        if at != wrap_dim(dim, self.ndim):
            need_agreement(own, other)
    return Padded(emit.call(emit.op, grad_output.tensor, self.tensor, dim), self.axes)


def first_alone(emit: Emitter, grad_output: Padded, self: Padded, buffer: Padded) -> Padded:
    """The gradient of an elementwise op of one tensor, from a buffer that is as large, or empty."""
    axes = broadcast_axes([grad_output.axes, self.axes])
    return Padded(emit.call(emit.op, grad_output.tensor, self.tensor, buffer.tensor), axes)


def resampling(
    emit: Emitter,
    grad_output: Padded,
    output_size: Sequence[Size],
    input_size: Sequence[Size],
    *rest: Any,
) -> Padded:
    """The gradient of a resampling of positions that are not padded; batch and channels may be."""
    if any(map(is_padded, grad_output.axes[2:])) or any(
        map(varies, (*output_size, *input_size[2:]))
    ):
        raise Refuse("positions that are resampled are padded", *padded_sizes(grad_output.axes[2:]))
    sizes = [*map(capacity_of, grad_output.axes[:2]), *input_size[2:]]
    tensor = emit.call(emit.op, grad_output.tensor, list(output_size), sizes, *rest)
    return Padded(tensor, (*grad_output.axes[:2], *(normal((size,)) for size in input_size[2:])))


def max_pooling(
    emit: Emitter,
    grad_output: Padded,
    self: Padded,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Padded,
) -> Padded:
    """The gradient of the maximum over windows: padding adds 0 to the first position."""
    for own, other in zip(grad_output.axes, indices.axes, strict=True):
        need_agreement(own, other)
    for axis in self.axes[-2:]:
        prefix(axis)
    gradient, places = masked(emit, grad_output, 0), masked(emit, indices, 0)
    tensor, width = places.tensor, prefix(self.axes[-1])
    if varies(width):  # a position is row * width + column, of the true width
        true = emit.call(_aten.clamp.default, emit.size(width), 1)
        row = emit.call(_aten.div.Tensor_mode, tensor, true, rounding_mode="floor")
        column = emit.call(_aten.remainder.Tensor, tensor, true)
        tensor = emit.call(
            _aten.add.Tensor, emit.call(_aten.mul.Tensor, row, capacity(width)), column
        )
        emit.repaired(f"index: counted by rows of {width}", width)
    window = (kernel_size, stride, padding, dilation, ceil_mode)
    return Padded(emit.call(emit.op, gradient.tensor, self.tensor, *window, tensor), self.axes)


def pooling(emit: Emitter, grad_output: Padded, self: Padded, *args: Any, **kwargs: Any) -> Padded:
    """The gradient of averages over windows of positions that are not padded; batch and channels
    may be.
    """
    pooled = 3 if "3d" in emit.op._schema.name else 2
    positions = (*self.axes[-pooled:], *grad_output.axes[-pooled:])
    if any(map(is_padded, positions)):
        raise Refuse("pooled positions are padded", *padded_sizes(positions))
    for own, other in zip(grad_output.axes[:-pooled], self.axes[:-pooled], strict=True):
        need_agreement(own, other)
    rest = {name: lowered(arg) for name, arg in kwargs.items()}
    return Padded(
        emit.call(emit.op, grad_output.tensor, self.tensor, *map(lowered, args), **rest), self.axes
    )
