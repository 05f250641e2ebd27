"""Maximum pooling, adaptive and fractional, their gradients, and unpooling."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core.checks import (
    FLOATS,
    REALS,
    need_dtype,
    need_nonempty,
    need_positive,
    need_rank,
    need_same,
    need_sizes,
)
from meta_fns.core.registry import register, rule
from meta_fns.core.sizes import Shape, Size, check, known, product, show
from meta_fns.core.spec import TensorSpec, in_suggested_format
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.pooling import (
    need_gradient,
    need_window,
    pair,
    pooled_size,
    window_sizes,
)
from meta_fns.padding import convolution as padded_convolution
from meta_fns.padding import gradients

__all__: list[str] = []

Pair = tuple[TensorSpec, TensorSpec]


def _with_positions(values: TensorSpec) -> Pair:
    return values, values.with_(dtype=torch.int64)


@rule("aten.max_pool2d_with_indices.default", padding=padded_convolution.max_pooling)
def max_pool2d_with_indices(
    self: TensorSpec,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> Pair:
    """The maximum over windows of the last two dimensions, and its int64 positions; channels-last
    stays so.
    """
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
    need_window(kernel, step, pad, spread)
    sizes = list(self.sizes)
    for i in range(2):
        size = pooled_size(self.sizes[n - 2 + i], kernel[i], pad[i], step[i], spread[i], ceil_mode)
        if not known(size >= 1):
            check(
                size >= 1,
                lambda: (
                    f"the output of pooling {show(self.sizes)} by {list(kernel)} would be empty"
                ),
            )
        sizes[n - 2 + i] = size
    return _with_positions(in_suggested_format(self, tuple(sizes), keeps=n == 4))


@rule("aten.max_pool1d.default", padding=padded_convolution.max_pooling_1d)
def max_pool1d(
    self: TensorSpec,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> TensorSpec:
    """The maximum over windows of the last dimension, as the CPU computes it without gradients:
    always contiguous.
    """
    n = len(self.sizes)
    if n not in (2, 3):
        raise ShapeError(f"needs 2 or 3 dimensions, got {show(self.sizes)}")
    if not self.dtype.is_floating_point:
        raise DtypeError(f"max_pool1d is not implemented for {self.dtype}")
    (kernel,) = pair(kernel_size, n=1)
    (step,) = pair(stride, [kernel], n=1)
    (pad,), (spread,) = pair(padding, n=1), pair(dilation, n=1)
    need_window([kernel], [step], [pad], [spread])
    for size in self.sizes[-2:]:
        if not known(size != 0):
            check(size != 0, lambda: f"only the batch may be empty, got {show(self.sizes)}")
    size = pooled_size(self.sizes[-1], kernel, pad, step, spread, ceil_mode)
    if not known(size >= 1):
        check(
            size >= 1,
            lambda: f"the output of pooling {show(self.sizes)} by {kernel} would be empty",
        )
    return self.fresh((*self.sizes[:-1], size))


@rule("aten.max_pool3d_with_indices.default")
def max_pool3d_with_indices(
    self: TensorSpec,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> Pair:
    """The maximum over windows of the last three dimensions, and its int64 positions; channels-last
    stays so.
    """
    kernel = pair(kernel_size, n=3)
    need_dtype("self", self, REALS)
    sizes = window_sizes(
        self, kernel, pair(stride, kernel, 3), pair(padding, n=3), pair(dilation, n=3), ceil_mode
    )
    return _with_positions(in_suggested_format(self, sizes, keeps=len(sizes) == 5))


def _register_backward(n: int) -> None:
    def backward(
        grad_output: TensorSpec,
        self: TensorSpec,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
        indices: TensorSpec,
    ) -> TensorSpec:
        kernel = pair(kernel_size, n=n)
        if grad_output.dtype is not self.dtype:
            raise DtypeError(f"grad_output is of {grad_output.dtype}, self of {self.dtype}")
        need_dtype("self", self, FLOATS)
        step, pad, spread = pair(stride, kernel, n), pair(padding, n=n), pair(dilation, n=n)
        if n == 2:
            sizes = window_sizes(self, kernel, step, pad, spread, ceil_mode)
        else:
            # Eager takes the sizes of the gradient as they are here, if only the channels agree.
            need_window(kernel, step, pad, spread)
            need_rank("self", self, n + 1, n + 2)
            need_rank("grad_output", grad_output, len(self.sizes))
            need_nonempty("self", self, range(len(self.sizes) - n - 1, len(self.sizes)))
            need_positive("sizes of grad_output", grad_output.sizes[-n:])
            sizes = (*self.sizes[:-n], *grad_output.sizes[-n:])
        need_gradient(grad_output, sizes, len(sizes) if n == 2 else n + 1)
        need_gradient(indices, sizes, len(sizes) if n == 2 else n + 1)
        need_dtype("indices", indices, (torch.int64,))
        return in_suggested_format(self, keeps=len(sizes) == n + 2)

    backward.__doc__ = f"The gradient of max_pool{n}d."
    name = f"aten.max_pool{n}d_with_indices_backward.default"
    register(
        name,
        backward,
        name="gradient of max pooling",
        padding=gradients.max_pooling if n == 2 else None,
    )


def _register_adaptive(n: int) -> None:
    def adaptive(self: TensorSpec, output_size: Sequence[int]) -> Pair:
        need_rank("self", self, n + 1, n + 2)
        need_nonempty("self", self, range(1, len(self.sizes)))
        if len(output_size) != n:
            raise ShapeError(f"output_size needs {n} values, got {show(output_size)}")
        for size in output_size:
            check(size >= 0, lambda: f"output_size must not be negative, got {show(output_size)}")
        need_dtype("self", self, FLOATS)
        return _with_positions(
            in_suggested_format(self, (*self.sizes[:-n], *output_size), keeps=n == 2)
        )

    def backward(grad_output: TensorSpec, self: TensorSpec, indices: TensorSpec) -> TensorSpec:
        need_rank("grad_output", grad_output, n + 1, n + 2)
        need_nonempty("grad_output", grad_output, range(1, len(grad_output.sizes)))
        need_sizes("grad_output", grad_output, indices.sizes)
        need_dtype("indices", indices, (torch.int64,))
        if grad_output.dtype is not self.dtype:
            raise DtypeError(f"grad_output is of {grad_output.dtype}, self of {self.dtype}")
        need_dtype("self", self, FLOATS)
        return in_suggested_format(self, keeps=n == 2)

    adaptive.__doc__ = (
        f"The maximum over as many windows as `output_size` says, in the last {n} dimensions."
    )
    backward.__doc__ = f"The gradient of adaptive_max_pool{n}d."
    register(
        f"aten.adaptive_max_pool{n}d.default",
        adaptive,
        name="adaptive max pooling",
        padding=padded_convolution.adaptive_max_pooling,
    )
    register(
        f"aten.adaptive_max_pool{n}d_backward.default",
        backward,
        name="gradient of adaptive max pooling",
    )


def _fraction_sizes(
    self: TensorSpec, kernel_size: Sequence[int], output_size: Sequence[int], n: int
) -> Shape:
    need_rank("self", self, n + 1, n + 2)
    if len(kernel_size) not in (1, n) or len(output_size) not in (1, n):
        raise ShapeError(
            f"kernel_size and output_size need {n} values, got {list(kernel_size)}, "
            f"{list(output_size)}"
        )
    kernel, out = pair(kernel_size, n=n), pair(output_size, n=n)
    ndim = len(self.sizes)
    need_nonempty("self", self, range(ndim - n - 1, ndim))
    for size, k, o in zip(self.sizes[-n:], kernel, out, strict=True):
        fits = o + k - 1 <= size if n == 2 else o + k - 1 < size
        if not known(fits):
            check(
                fits,
                f"windows of {list(kernel)} for {list(out)} outputs do not fit into "
                f"{show(self.sizes)}",
            )
    return (*self.sizes[:-n], *out)


def _register_fractional(n: int) -> None:
    def fractional(
        self: TensorSpec,
        kernel_size: Sequence[int],
        output_size: Sequence[int],
        random_samples: TensorSpec,
    ) -> Pair:
        sizes = _fraction_sizes(self, kernel_size, output_size, n)
        need_rank("random_samples", random_samples, 3)
        if random_samples.dtype is not self.dtype:
            raise DtypeError(f"random_samples are of {random_samples.dtype}, self of {self.dtype}")
        need_dtype("self", self, FLOATS)
        batch = self.sizes[0] if len(self.sizes) == n + 2 else 1
        least = random_samples.sizes[0] >= batch
        if not known(least):
            check(
                least,
                lambda: (
                    f"random_samples {show(random_samples.sizes)} do not fit self "
                    f"{show(self.sizes)}"
                ),
            )
        need_sizes(
            "random_samples", random_samples, (random_samples.sizes[0], self.sizes[-n - 1], n)
        )
        return _with_positions(self.fresh(sizes))

    def backward(
        grad_output: TensorSpec,
        self: TensorSpec,
        kernel_size: Sequence[int],
        output_size: Sequence[int],
        indices: TensorSpec,
    ) -> TensorSpec:
        need_rank("self", self, n + 1, n + 2)
        need_dtype("self", self, FLOATS)
        need_same("grad_output", grad_output, "self", self)
        need_dtype("indices", indices, (torch.int64,))
        sizes = (*self.sizes[:-n], *pair(output_size, n=n))
        need_gradient(grad_output, sizes, len(sizes) if n == 2 else n)
        if n == 2:
            need_sizes("indices", indices, sizes)
        space = product(self.sizes[-n:])
        if not known(space >= 1):
            fits = (grad_output.numel() == 0) | (space >= 1)
            check(fits, lambda: f"nothing of {show(self.sizes)} can have been a maximum")
        return self.fresh()

    fractional.__doc__ = f"The maximum over windows at random places in the last {n} dimensions."
    backward.__doc__ = f"The gradient of fractional_max_pool{n}d."
    register(f"aten.fractional_max_pool{n}d.default", fractional, name="fractional max pooling")
    register(
        f"aten.fractional_max_pool{n}d_backward.default",
        backward,
        name="gradient of fractional max pooling",
    )


for _n in (2, 3):
    _register_backward(_n)
    _register_adaptive(_n)
    _register_fractional(_n)


def _unpooled(
    self: TensorSpec, indices: TensorSpec, output_size: Sequence[Size], n: int
) -> TensorSpec:
    need_dtype("indices", indices, (torch.int64,))
    if len(output_size) != n:
        raise ShapeError(f"output_size needs {n} values, got {show(output_size)}")
    need_rank("self", self, n + 1, n + 2)
    need_sizes("indices", indices, self.sizes)
    need_nonempty("self", self, range(1, len(self.sizes)))
    need_dtype("self", self, FLOATS)
    keep = n == 2 and self.device.type == "cpu"
    return in_suggested_format(self, (*self.sizes[:-n], *output_size), keeps=keep)


@rule("aten.max_unpool2d.default")
def max_unpool2d(self: TensorSpec, indices: TensorSpec, output_size: Sequence[Size]) -> TensorSpec:
    """Zeros of ``output_size`` with each value where its maximum was."""
    return _unpooled(self, indices, output_size, 2)


@rule("aten.max_unpool3d.default")
def max_unpool3d(
    self: TensorSpec,
    indices: TensorSpec,
    output_size: Sequence[Size],
    stride: Sequence[int],
    padding: Sequence[int],
) -> TensorSpec:
    """Zeros of ``output_size`` with each value where its maximum was."""
    if len(stride) != 3 or len(padding) != 3:
        raise ShapeError(f"stride and padding need 3 values, got {list(stride)}, {list(padding)}")
    need_positive("stride", stride)
    return _unpooled(self, indices, output_size, 3)
