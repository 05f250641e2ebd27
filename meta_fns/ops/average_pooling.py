"""Average pooling, adaptive average pooling, their gradients; sliding windows as columns."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import layout
from meta_fns.core.checks import (
    FLOATS,
    need_dtype,
    need_equal,
    need_nonempty,
    need_rank,
    need_same,
    refuse_unless_empty,
)
from meta_fns.core.registry import register, rule
from meta_fns.core.sizes import Shape, Size, check, known, same, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.pooling import pair, pooled_size

__all__ = ["formatted", "need_window", "window_sizes"]


def formatted(spec: TensorSpec, sizes: Shape, like: TensorSpec | None = None, *, keep: bool = True) -> TensorSpec:
    """A fresh tensor of `sizes` in the memory format that `like` (or `spec` itself) suggests if it is to be kept."""
    like = like or spec
    found = torch.contiguous_format
    if keep and len(sizes) in (4, 5) and len(sizes) == len(like.sizes) and not like.canonical():
        found = layout.suggested_format(like.sizes, like.strides)
    return TensorSpec(sizes, layout.strides_of_format(sizes, found), 0, spec.dtype, spec.device)


def need_window(
    kernel: Sequence[Size], stride: Sequence[Size], padding: Sequence[Size], dilation: Sequence[Size]
) -> None:
    """Require positive kernels, strides and dilations, and paddings of at most half the kernel."""
    for k, s, p, d in zip(kernel, stride, padding, dilation, strict=True):
        if k < 1 or s < 1 or d < 1:
            raise ShapeError("kernel_size, stride and dilation must be positive")
        if p < 0 or p > ((k - 1) * d + 1) // 2:
            raise ShapeError(f"padding {p} must be at least 0 and at most half of the kernel {k}")


def window_sizes(
    self: TensorSpec,
    kernel: Sequence[Size],
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    ceil_mode: bool,
) -> Shape:
    """The sizes after pooling the last dimensions.

    Raises: ShapeError if the input is empty outside the batch, or nothing would be left.
    """
    n = len(kernel)
    need_rank("self", self, n + 1, n + 2)
    need_window(kernel, stride, padding, dilation)
    ndim = len(self.sizes)
    need_nonempty("self", self, range(ndim - n - 1, ndim))
    sizes = list(self.sizes)
    for i in range(n):
        at = ndim - n + i
        size = pooled_size(self.sizes[at], kernel[i], padding[i], stride[i], dilation[i], ceil_mode)
        if not known(size >= 1):
            check(size >= 1, lambda: f"the output of pooling {show(self.sizes)} by {list(kernel)} would be empty")
        sizes[at] = size
    return tuple(sizes)


_POOLED = FLOATS | {torch.int64}


def _register_average(n: int) -> None:
    ones = [1] * n

    def sizes_of(
        self: TensorSpec, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int] | int, ceil: bool
    ) -> Shape:
        kernel = pair(kernel_size, n=n)
        if n == 3 and len(self.sizes) > 3:
            # Eager wants the kernel to fit into the input without its padding here.
            for size, k in zip(self.sizes[-n:], kernel, strict=True):
                fits = size >= k
                if not known(fits):
                    check(fits, f"input {show(self.sizes)} is smaller than the kernel {list(kernel)}")
        return window_sizes(self, kernel, pair(stride, kernel, n), pair(padding, n=n), ones, ceil)

    def average(
        self: TensorSpec,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] | int = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> TensorSpec:
        if divisor_override == 0:
            raise ShapeError("divisor_override must not be 0")
        need_dtype("self", self, _POOLED)
        return formatted(self, sizes_of(self, kernel_size, stride, padding, ceil_mode), keep=n == 2)

    def backward(
        grad_output: TensorSpec,
        self: TensorSpec,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> TensorSpec:
        if divisor_override == 0:
            raise ShapeError("divisor_override must not be 0")
        need_dtype("self", self, _POOLED)
        sizes = sizes_of(self, kernel_size, stride, padding, ceil_mode)
        need_gradient(grad_output, sizes, n + 1)
        need_same("grad_output", grad_output, "self", self)
        return formatted(self, self.sizes, keep=n == 2)

    average.__doc__ = f"The average over windows of the last {n} dimensions."
    backward.__doc__ = f"The gradient of avg_pool{n}d."
    register(f"aten.avg_pool{n}d.default", average, name="average pooling")
    register(f"aten.avg_pool{n}d_backward.default", backward, name="gradient of average pooling")


def need_gradient(grad_output: TensorSpec, sizes: Shape, last: int) -> None:
    """Require a gradient of these sizes in the last dimensions (eager looks at no others)."""
    if len(grad_output.sizes) != len(sizes):
        raise ShapeError(f"grad_output {show(grad_output.sizes)} must be of sizes {show(sizes)}")
    for mine, wanted in zip(grad_output.sizes[-last:], sizes[-last:], strict=True):
        need_equal(mine, wanted, "grad_output does not fit")


def _register_adaptive(n: int) -> None:
    def adaptive(self: TensorSpec, output_size: Sequence[Size]) -> TensorSpec:
        if len(output_size) != n:
            raise ShapeError(f"output_size needs {n} values, got {show(output_size)}")
        need_rank("self", self, n + 1, n + 2)
        ndim = len(self.sizes)
        need_nonempty("self", self, range(ndim - n if n == 2 else 1, ndim))
        if self.dtype not in FLOATS:
            without = (*self.sizes[:-n], *output_size) if n == 2 else ()
            refuse_unless_empty(f"not implemented for self of {self.dtype}", without)
        for size in output_size:
            if not known(size >= 0):
                check(size >= 0, lambda: f"output_size must not be negative, got {show(output_size)}")
        return formatted(self, (*self.sizes[:-n], *output_size), keep=n == 2)

    def backward(grad_output: TensorSpec, self: TensorSpec) -> TensorSpec:
        need_rank("grad_output", grad_output, n + 1, n + 2)
        need_nonempty("grad_output", grad_output, range(1, len(grad_output.sizes)))
        if len(grad_output.sizes) != len(self.sizes):
            raise ShapeError(f"grad_output {show(grad_output.sizes)} does not fit self {show(self.sizes)}")
        if grad_output.dtype is not self.dtype:
            raise DtypeError(f"grad_output is of {grad_output.dtype}, self of {self.dtype}")
        need_dtype("self", self, FLOATS)
        return formatted(self, self.sizes, keep=n == 2)

    adaptive.__doc__ = f"The average over as many windows as `output_size` says, in the last {n} dimensions."
    backward.__doc__ = f"The gradient of adaptive_avg_pool{n}d."
    register(f"aten._adaptive_avg_pool{n}d.default", adaptive, name="adaptive average pooling")
    register(f"aten._adaptive_avg_pool{n}d_backward.default", backward, name="gradient of adaptive average pooling")


for _n in (2, 3):
    _register_average(_n)
    _register_adaptive(_n)


# --- windows as columns ----------------------------------------------------------------------------------------------


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


@rule("aten.im2col.default")
def im2col(
    self: TensorSpec,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> TensorSpec:
    """Each window as a column: `(n, c, h, w) -> (n, c k k, windows)`."""
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
    """Columns added up where their windows were: `(n, c k k, windows) -> (n, c, *output_size)`."""
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
        check(count == rows * columns, lambda: f"{count} columns are not the windows of {show(output_size)}")
    return self.fresh((*self.sizes[:-2], channels // window, *output_size))


_COLUMNS = FLOATS | {torch.complex64, torch.complex128, torch.bool}
