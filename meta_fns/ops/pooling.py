"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import layout
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, check, known, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, ShapeError

__all__ = ["max_pool2d_with_indices", "pair", "pooled_size"]


def pair(values: Sequence[Size] | Size, default: Sequence[Size] = (), n: int = 2) -> Sequence[Size]:
    """A value for each of `n` spatial dimensions; an empty list stands for the default.

    Raises: ShapeError for another number of values.
    """
    if not isinstance(values, (list, tuple)):
        return [values] * n
    if len(values) == n:
        return values
    if len(values) == 1:
        return list(values) * n
    if not values and default:
        return default
    raise ShapeError(f"needs 1 or {n} values, got {list(values)}")


def pooled_size(size: Size, kernel: Size, padding: Size, stride: Size, dilation: Size, ceil_mode: bool) -> Size:
    """The size of a pooled dimension; with `ceil_mode` a last window that starts inside the input or its left padding
    counts.
    """
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return span // stride + 1
    out = (span + stride - 1) // stride + 1
    # A last window that would start in the right padding is left out.
    if (out - 1) * stride >= size + padding:
        out = out - 1
    return out


@rule("aten.max_pool2d_with_indices.default")
def max_pool2d_with_indices(
    self: TensorSpec,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> tuple[TensorSpec, TensorSpec]:
    """The maximum over windows of the last two dimensions, and its int64 positions; channels-last stays so."""
    kernel = pair(kernel_size)
    step = pair(stride, kernel)
    pad, spread = pair(padding), pair(dilation)
    n = len(self.sizes)
    if n not in (3, 4):
        raise ShapeError(f"needs 3 or 4 dimensions, got {show(self.sizes)}")
    if self.dtype is torch.bool or self.dtype.is_complex:
        raise DtypeError(f"max_pool2d is not implemented for {self.dtype}")
    for size in self.sizes[-3:]:
        if not known(size != 0):
            check(size != 0, lambda: f"only the batch may be empty, got {show(self.sizes)}")
    for k, s, p, d in zip(kernel, step, pad, spread, strict=True):
        if k < 1 or s < 1 or d < 1:
            raise ShapeError("kernel_size, stride and dilation must be positive")
        if p < 0 or p > ((k - 1) * d + 1) // 2:
            raise ShapeError(f"padding {p} must be at least 0 and at most half of the kernel {k}")
    sizes = list(self.sizes)
    for i in range(2):
        size = pooled_size(self.sizes[n - 2 + i], kernel[i], pad[i], step[i], spread[i], ceil_mode)
        if not known(size >= 1):
            check(size >= 1, lambda: f"the output of pooling {show(self.sizes)} by {list(kernel)} would be empty")
        sizes[n - 2 + i] = size
    found = torch.contiguous_format
    if n == 4 and not self.canonical():
        found = layout.suggested_format(self.sizes, self.strides)
    strides = layout.strides_of_format(sizes, found)
    values = TensorSpec(tuple(sizes), strides, 0, self.dtype, self.device)
    return values, values.with_(dtype=torch.int64)
