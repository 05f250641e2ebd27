"""The parts that all pooling ops share: windows, output sizes, and memory formats."""

from __future__ import annotations

from collections.abc import Sequence

from meta_fns.core.checks import need_equal, need_nonempty, need_rank
from meta_fns.core.sizes import Shape, Size, check, known, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import ShapeError

__all__ = ["need_gradient", "need_window", "pair", "pooled_size", "window_sizes"]


def pair(values: Sequence[Size] | Size, default: Sequence[Size] = (), n: int = 2) -> Sequence[Size]:
    """A value for each of ``n`` spatial dimensions; an empty list stands for the default.

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


def pooled_size(
    size: Size, kernel: Size, padding: Size, stride: Size, dilation: Size, ceil_mode: bool
) -> Size:
    """The size of a pooled dimension.

    With ``ceil_mode`` a last window that starts inside the input or its left padding counts.
    """
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return span // stride + 1
    out = (span + stride - 1) // stride + 1
    # A last window that would start in the right padding is left out.
    if (out - 1) * stride >= size + padding:
        out = out - 1
    return out


def need_window(
    kernel: Sequence[Size],
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
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
            check(
                size >= 1,
                lambda: (
                    f"the output of pooling {show(self.sizes)} by {list(kernel)} would be empty"
                ),
            )
        sizes[at] = size
    return tuple(sizes)


def need_gradient(grad_output: TensorSpec, sizes: Shape, last: int) -> None:
    """Require a gradient of these sizes in the last dimensions (eager looks at no others)."""
    if len(grad_output.sizes) != len(sizes):
        raise ShapeError(f"grad_output {show(grad_output.sizes)} must be of sizes {show(sizes)}")
    for mine, wanted in zip(grad_output.sizes[-last:], sizes[-last:], strict=True):
        need_equal(mine, wanted, "grad_output does not fit")
