"""Sliding windows as columns (im2col, behind ``F.unfold``) and columns added up again (col2im,
behind ``F.fold``).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core.checks import FLOATS, need_dtype, need_nonempty, need_rank
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, check, known, same, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import ShapeError
from meta_fns.padding.convolution import columns

__all__: list[str] = []


def _column_counts(
    spatial: Sequence[Size],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> list[Size]:
    for name, values, least in (
        ("kernel_size", kernel_size, 1),
        ("dilation", dilation, 1),
        ("padding", padding, 0),
        ("stride", stride, 1),
    ):
        if len(values) != 2 or any(value < least for value in values):
            raise ShapeError(f"{name} needs 2 values of at least {least}, got {list(values)}")
    counts = []
    for size, k, d, p, s in zip(spatial, kernel_size, dilation, padding, stride, strict=True):
        count = (size + 2 * p - d * (k - 1) - 1) // s + 1
        if not known(count >= 1):
            check(count >= 1, f"windows of {list(kernel_size)} do not fit into {show(spatial)}")
        counts.append(count)
    return counts


@rule("aten.im2col.default", padding=columns)
def im2col(
    self: TensorSpec,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> TensorSpec:
    """Each window as a column: ``(n, c, h, w) -> (n, c k k, windows)``."""
    need_rank("self", self, 3, 4)
    need_nonempty("self", self, range(len(self.sizes) - 3, len(self.sizes)))
    need_dtype("self", self, _COLUMNS)
    rows, columns = _column_counts(self.sizes[-2:], kernel_size, dilation, padding, stride)
    channels = self.sizes[-3] * (kernel_size[0] * kernel_size[1])
    return self.fresh((*self.sizes[:-3], channels, rows * columns))


@rule("aten.col2im.default")
def col2im(
    self: TensorSpec,
    output_size: Sequence[Size],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> TensorSpec:
    """Columns added up where their windows were: ``(n, c k k, windows) -> (n, c,
    *output_size)``.
    """
    need_rank("self", self, 2, 3)
    need_nonempty("self", self, range(len(self.sizes) - 2, len(self.sizes)))
    need_dtype("self", self, _COLUMNS)
    rows, columns = _column_counts(output_size, kernel_size, dilation, padding, stride)
    window = kernel_size[0] * kernel_size[1]
    channels, count = self.sizes[-2], self.sizes[-1]
    fits = channels % window == 0
    if not known(fits):
        check(fits, lambda: f"{channels} rows are no multiple of the window {list(kernel_size)}")
    if not same(count, rows * columns):
        check(
            count == rows * columns,
            lambda: f"{count} columns are not the windows of {show(output_size)}",
        )
    return self.fresh((*self.sizes[:-2], channels // window, *output_size))


_COLUMNS = FLOATS | {torch.complex64, torch.complex128, torch.bool}
