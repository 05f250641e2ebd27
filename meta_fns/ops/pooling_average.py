"""Average pooling, adaptive average pooling, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core.checks import (
    FLOATS,
    need_dtype,
    need_nonempty,
    need_rank,
    need_same,
    refuse_unless_empty,
)
from meta_fns.core.registry import register
from meta_fns.core.sizes import Shape, Size, check, known, show
from meta_fns.core.spec import TensorSpec, in_suggested_format
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.pooling import need_gradient, pair, window_sizes
from meta_fns.padding import gradients
from meta_fns.padding.convolution import average_pooling
from meta_fns.padding.resampling import adaptive_average

__all__: list[str] = []


_POOLED = FLOATS | {torch.int64}


def _average_sizes(
    self: TensorSpec,
    n: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] | int,
    ceil_mode: bool,
) -> Shape:
    kernel = pair(kernel_size, n=n)
    if n == 3 and len(self.sizes) > 3:
        # Eager wants the kernel to fit into the input without its padding here.
        for size, k in zip(self.sizes[-n:], kernel, strict=True):
            fits = size >= k
            if not known(fits):
                check(fits, f"input {show(self.sizes)} is smaller than the kernel {list(kernel)}")
    return window_sizes(
        self, kernel, pair(stride, kernel, n), pair(padding, n=n), [1] * n, ceil_mode
    )


def _register_average(n: int) -> None:
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
        return in_suggested_format(
            self, _average_sizes(self, n, kernel_size, stride, padding, ceil_mode), keeps=n == 2
        )

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
        sizes = _average_sizes(self, n, kernel_size, stride, padding, ceil_mode)
        need_gradient(grad_output, sizes, n + 1)
        need_same("grad_output", grad_output, "self", self)
        return in_suggested_format(self, keeps=n == 2)

    average.__doc__ = f"The average over windows of the last {n} dimensions."
    backward.__doc__ = f"The gradient of avg_pool{n}d."
    register(f"aten.avg_pool{n}d.default", average, name="average pooling", padding=average_pooling)
    register(
        f"aten.avg_pool{n}d_backward.default",
        backward,
        name="gradient of average pooling",
        padding=gradients.pooling,
    )


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
                check(
                    size >= 0, lambda: f"output_size must not be negative, got {show(output_size)}"
                )
        return in_suggested_format(self, (*self.sizes[:-n], *output_size), keeps=n == 2)

    def backward(grad_output: TensorSpec, self: TensorSpec) -> TensorSpec:
        need_rank("grad_output", grad_output, n + 1, n + 2)
        need_nonempty("grad_output", grad_output, range(1, len(grad_output.sizes)))
        if len(grad_output.sizes) != len(self.sizes):
            raise ShapeError(
                f"grad_output {show(grad_output.sizes)} does not fit self {show(self.sizes)}"
            )
        if grad_output.dtype is not self.dtype:
            raise DtypeError(f"grad_output is of {grad_output.dtype}, self of {self.dtype}")
        need_dtype("self", self, FLOATS)
        return in_suggested_format(self, keeps=n == 2)

    adaptive.__doc__ = (
        f"The average over as many windows as `output_size` says, in the last {n} dimensions."
    )
    backward.__doc__ = f"The gradient of adaptive_avg_pool{n}d."
    subject = "adaptive average pooling"
    register(
        f"aten._adaptive_avg_pool{n}d.default", adaptive, name=subject, padding=adaptive_average
    )
    name = f"aten._adaptive_avg_pool{n}d_backward.default"
    register(name, backward, name="gradient of adaptive average pooling", padding=gradients.pooling)


for _n in (2, 3):
    _register_average(_n)
    _register_adaptive(_n)
