"""The results of TensorIterator: the broadcast shape, the output's strides, the device.

Source: ATen/TensorIterator.cpp (compute_shape, fast_set_up, reorder_dimensions,
allocate_or_resize_outputs).  Exact on plain ints.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import dense, layout
from meta_fns.core.broadcasting import broadcast
from meta_fns.core.sizes import Shape, Size, at_least_one, empty, known, same, same_shape, static
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError

__all__ = ["common_device", "iterate", "laid_out_like", "output_strides"]


def common_device(tensors: Sequence[TensorSpec]) -> torch.device:
    """Return the device of the output: 0-d CPU tensors combine with any device.

    Raises: DtypeError for two devices otherwise.
    """
    device = tensors[0].device
    for tensor in tensors:
        other = tensor.device
        if other is device or other == device:
            continue
        if tensor.sizes or other.type != "cpu":
            if device.type == "cpu" and not any(t.sizes for t in tensors if t.device == device):
                device = other
                continue
            raise DtypeError(f"arguments are on two devices, {device} and {other}")
    return device


def iterate(
    tensors: Sequence[TensorSpec],
    dtype: torch.dtype,
    common: torch.dtype | None = None,
    *,
    numbers: bool = False,
) -> TensorSpec:
    """Return the fresh output, of ``dtype``, of a pointwise op over these tensors.

    The tensors are first cast to ``common`` if given.  ``numbers``: Python numbers are operands
    too.  Eager makes 0-d tensors of them, so that its operands no longer have one shape.
    """
    first = tensors[0]
    if len(tensors) == 1:
        sizes, device = first.sizes, first.device
        if first.canonical() and not (numbers and empty(sizes)):
            return first.fresh(None, dtype)
    else:
        device = first.device if _one_device(tensors) else common_device(tensors)
        sizes = first.sizes
        gap = numbers and empty(sizes)
        for tensor in tensors:
            if tensor.sizes is not sizes:
                sizes = broadcast(*[t.sizes for t in tensors])
                gap = empty(sizes) and (
                    numbers or not all(same_shape(t.sizes, sizes) for t in tensors)
                )
                break
        for tensor in tensors:
            if gap or not tensor.canonical():
                break
        else:
            # Tensors that are contiguous before broadcasting give a contiguous output; share
            # strides if one is full-size.
            for tensor in tensors:
                if tensor.sizes is sizes:
                    return TensorSpec(sizes, tensor.strides, 0, dtype, device, torch.strided, True)
            return TensorSpec.contiguous(sizes, dtype, device)
    views = [(t.sizes, _cast_strides(t, common)) for t in tensors]
    if numbers and static(sizes):
        views.append(((), ()))
    return TensorSpec(sizes, output_strides(sizes, views, numbers=numbers), 0, dtype, device)


def _one_device(tensors: Sequence[TensorSpec]) -> bool:
    device = tensors[0].device
    for tensor in tensors:  # noqa: SIM110 - a generator is slower
        if tensor.device is not device:
            return False
    return True


def _cast_strides(tensor: TensorSpec, common: torch.dtype | None) -> Shape:
    """Return the strides of an operand after the cast that eager makes, on CPU, before it considers
    strides.
    """
    if common is None or tensor.dtype is common or tensor.device.type != "cpu":
        return tensor.strides
    return dense.like_strides(tensor.sizes, tensor.strides, None)


def output_strides(
    sizes: Shape, operands: Sequence[tuple[Shape, Shape]], *, numbers: bool = False
) -> Shape:
    """Return the strides of a fresh output of ``sizes`` for operands ``(sizes, strides)`` before
    broadcasting.

    If all operands have the output's shape and one dense layout, that layout is returned; else the
    dimensions are ordered by the operands' strides, and the first operand with different strides
    for two dimensions decides their order. ``numbers``: whether numbers are operands besides, which
    have no shape.
    """
    whole = all(same_shape(shape, sizes) for shape, _ in operands)
    exact = static(sizes) and all(static(strides) for _, strides in operands)
    if whole:
        if exact and all(layout.is_contiguous(shape, strides) for shape, strides in operands):
            return layout.contiguous_strides(sizes)
        if exact and len(sizes) == 4:
            last = torch.channels_last
            if all(layout.is_channels_last(shape, strides, last) for shape, strides in operands):
                return layout.channels_last_strides(sizes)
        if not numbers and all(
            layout.plainly_contiguous(shape, strides) for shape, strides in operands
        ):
            # also where it is channels-last as well: images of one pixel
            return layout.contiguous_strides(sizes)
        strides = operands[0][1]
        if all(
            same_shape(other, strides) and dense.is_dense(sizes, other) for _, other in operands
        ):
            return strides
    n = len(sizes)
    if n <= 1:
        return layout.contiguous_strides(sizes)
    keys = [_keys(sizes, shape, strides) for shape, strides in operands]
    order = dense.memory_order(sizes, [key for key in keys if key is not None])
    if order == list(range(n - 1, -1, -1)):
        return layout.contiguous_strides(sizes)
    result: list[Size] = [1] * n
    stride: Size = 1
    for i in order:
        result[i] = stride
        # Eager multiplies by the size itself here, 0 included.
        stride = stride * (sizes[i] if type(sizes[i]) is int else at_least_one(sizes[i]))
    return tuple(result)


def _keys(sizes: Shape, shape: Shape, strides: Shape) -> list[Size] | None:
    """Return a sort key for each output dimension, by the operand's strides; None if the operand
    decides no order.

    Broadcast dimensions have key 0.  For a symbolic operand that is provably dense the keys are
    positions, not strides: comparing positions records no guard.
    """
    lead = len(sizes) - len(shape)
    keys: list[Size] = [0] * lead
    ranks: dict[int, int] | None = None
    if not static(shape) or not static(strides):
        if layout.canonical(shape, strides):
            ranks = {i: len(shape) - i for i in range(len(shape))}
        else:
            order = dense.dense_order(shape, strides)
            ranks = None if order is None else {i: position + 1 for position, i in enumerate(order)}
    telling = 0
    for i, stride in enumerate(strides):
        size = shape[i]
        # a symbolic size that a guard fixed to 1, too
        if not same(size, sizes[lead + i]) and known(size == 1):
            keys.append(0)
            continue
        key = stride if ranks is None else ranks[i]
        keys.append(key)
        telling += not same(key, 0)
    return keys if telling > 1 else None


def laid_out_like(self: TensorSpec, dtype: torch.dtype | None = None) -> TensorSpec:
    """Return the spec of a fresh tensor with the layout of ``self`` (``empty_like``)."""
    if self.canonical():
        return self.fresh(None, dtype)
    strides = dense.like_strides(self.sizes, self.strides, None)
    return TensorSpec(self.sizes, strides, 0, dtype or self.dtype, self.device)
