"""Resampling to another size: nearest, linear, cubic, antialiased; grid samplers; pixel
shuffling.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import layout
from meta_fns.core.checks import (
    FLOATS,
    need_dtype,
    need_equal,
    need_nonempty,
    need_positive,
    need_rank,
    need_same,
    need_sizes,
)
from meta_fns.core.registry import register, rule
from meta_fns.core.sizes import Shape, Size, check, known, product, show
from meta_fns.core.spec import TensorSpec, in_suggested_format
from meta_fns.core.tensor_iterator import laid_out_like
from meta_fns.core.view_strides import view_strides
from meta_fns.errors import ShapeError
from meta_fns.padding import gradients, rows
from meta_fns.padding import rearranging as padded_rearranging
from meta_fns.padding import resampling as padded_resampling

__all__: list[str] = []

_ACCEPTED = FLOATS | {torch.uint8}


def _register(name: str, n: int, *, plain_gradient: bool = False) -> None:
    """The rules of an upsampling op over ``n`` spatial dimensions and of its gradient (which
    ``plain_gradient`` makes contiguous whatever the layout).
    """

    def upsample(
        self: TensorSpec, output_size: Sequence[Size], *options: object, **named: object
    ) -> TensorSpec:
        if len(output_size) != n:
            raise ShapeError(f"output_size needs {n} values, got {show(output_size)}")
        need_rank("self", self, n + 2)
        need_nonempty("self", self, range(1, n + 2))
        need_positive("output_size", output_size)
        need_dtype("self", self, _ACCEPTED)
        return in_suggested_format(self, (*self.sizes[:2], *output_size), keeps=n > 1)

    def backward(
        grad_output: TensorSpec,
        output_size: Sequence[Size],
        input_size: Sequence[Size],
        *options: object,
        **named: object,
    ) -> TensorSpec:
        if len(output_size) != n or len(input_size) != n + 2:
            raise ShapeError(
                f"output_size {show(output_size)} and input_size {show(input_size)} do not fit "
                f"{n}-d"
            )
        need_positive("output_size", output_size)
        need_positive("input_size", input_size[2:])
        need_rank("grad_output", grad_output, n + 2)
        need_sizes("grad_output", grad_output, (*input_size[:2], *output_size))
        need_dtype("grad_output", grad_output, FLOATS)
        keeps = n > 1 and not plain_gradient
        return in_suggested_format(grad_output, tuple(input_size), keeps=keeps)

    upsample.__doc__ = f"{name} to `output_size`: `(n, c, *spatial) -> (n, c, *output_size)`."
    backward.__doc__ = f"The gradient of {name}."
    padding = None if name.endswith("_aa") else padded_resampling.upsample
    register(f"aten.{name}.default", upsample, name="resampling", padding=padding)
    of_gradient = None if name.endswith("_aa") else gradients.resampling
    register(
        f"aten.{name}_backward.default",
        backward,
        name="gradient of resampling",
        padding=of_gradient,
    )


for _n in (1, 2, 3):
    _register(f"upsample_nearest{_n}d", _n, plain_gradient=_n == 3)
    _register(f"_upsample_nearest_exact{_n}d", _n, plain_gradient=_n == 3)
_register("upsample_linear1d", 1)
_register("upsample_bilinear2d", 2)
_register("upsample_bicubic2d", 2, plain_gradient=True)
_register("upsample_trilinear3d", 3)
_register("_upsample_bilinear2d_aa", 2)
_register("_upsample_bicubic2d_aa", 2, plain_gradient=True)


# --- sampling at the points of a grid -------------------------------------------------------------


def _grid_checks(input: TensorSpec, grid: TensorSpec, n: int, interpolation_mode: int) -> None:
    need_same("grid", grid, "input", input)
    if len(input.sizes) != n + 2 or len(grid.sizes) != n + 2:
        raise ShapeError(
            f"input and grid must have {n + 2} dimensions: {show(input.sizes)}, {show(grid.sizes)}"
        )
    need_equal(input.sizes[0], grid.sizes[0], "the batches of input and grid")
    need_equal(grid.sizes[-1], n, "the last dimension of grid")
    need_nonempty("input", input, range(2, n + 2))
    need_dtype("input", input, FLOATS)
    if n == 3 and interpolation_mode == 2:
        raise ShapeError("bicubic interpolation needs 4 dimensions")


def _register_grid(n: int) -> None:
    def sample(
        input: TensorSpec,
        grid: TensorSpec,
        interpolation_mode: int,
        padding_mode: int,
        align_corners: bool,
    ) -> TensorSpec:
        _grid_checks(input, grid, n, interpolation_mode)
        return TensorSpec.contiguous(
            (*input.sizes[:2], *grid.sizes[1:-1]), input.dtype, input.device
        )

    def backward(
        grad_output: TensorSpec,
        input: TensorSpec,
        grid: TensorSpec,
        interpolation_mode: int,
        padding_mode: int,
        align_corners: bool,
        output_mask: Sequence[bool],
    ) -> tuple[TensorSpec | None, TensorSpec]:
        _grid_checks(input, grid, n, interpolation_mode)
        need_same("grad_output", grad_output, "input", input)
        need_sizes("grad_output", grad_output, (*input.sizes[:2], *grid.sizes[1:-1]))
        return (input.fresh() if output_mask[0] else None), grid.fresh()

    sample.__doc__ = "`input` at the points of a grid: `(n, c, *), (n, *out, d) -> (n, c, *out)`."
    backward.__doc__ = "The gradients of the grid sampler, contiguous."
    register(f"aten.grid_sampler_{n}d.default", sample, name="grid sampling", padding=rows.sampled)
    register(f"aten.grid_sampler_{n}d_backward.default", backward, name="gradient of grid sampling")


_register_grid(2)
_register_grid(3)


@rule("aten.cudnn_grid_sampler.default", padding=rows.sampled)
def cudnn_grid_sampler(self: TensorSpec, grid: TensorSpec) -> TensorSpec:
    """The bilinear grid sampler of cuDNN: ``(n, c, h, w), (n, *out, 2) -> (n, c, *out)``."""
    _grid_checks(self, grid, 2, 0)
    return self.fresh((*self.sizes[:2], *grid.sizes[1:-1]))


@rule("aten.cudnn_grid_sampler_backward.default")
def cudnn_grid_sampler_backward(
    self: TensorSpec, grid: TensorSpec, grad_output: TensorSpec
) -> tuple[TensorSpec, TensorSpec]:
    """The gradients of input and grid, contiguous."""
    _grid_checks(self, grid, 2, 0)
    return self.fresh(), grid.fresh()


@rule("aten.affine_grid_generator.default")
def affine_grid_generator(
    theta: TensorSpec, size: Sequence[Size], align_corners: bool
) -> TensorSpec:
    """A grid for each affine matrix: ``(n, 2, 3) -> (n, h, w, 2)``,
    ``(n, 3, 4) -> (n, d, h, w, 3)``.
    """
    n = len(size) - 2
    if n not in (2, 3):
        raise ShapeError(f"size needs 4 or 5 values, got {show(size)}")
    need_dtype("theta", theta, FLOATS)
    need_sizes("theta", theta, (size[0], n, n + 1))
    return TensorSpec.contiguous((size[0], *size[2:], n), theta.dtype, theta.device)


# --- channels to space and back -------------------------------------------------------------------


def _shuffled(self: TensorSpec, sizes: Shape, *, cpu_format: bool) -> TensorSpec:
    if (
        cpu_format
        and len(self.sizes) == 5
        and sizes is not self.sizes
        and layout.is_channels_last_strides(self.sizes, self.strides)
    ):
        raise ShapeError("not implemented for channels-last tensors of 5 dimensions")
    return in_suggested_format(self, sizes, keeps=cpu_format)


@rule("aten.pixel_shuffle.default", padding=padded_rearranging.pixel_shuffle)
def pixel_shuffle(self: TensorSpec, upscale_factor: int) -> TensorSpec:
    """Channels to space: ``(*, c r r, h, w) -> (*, c, h r, w r)``."""
    r = upscale_factor
    if len(self.sizes) < 3:
        raise ShapeError(f"needs at least 3 dimensions, got {show(self.sizes)}")
    if r <= 0:
        raise ShapeError(f"upscale_factor must be positive, got {r}")
    *lead, c, h, w = self.sizes
    fits = c % (r * r) == 0
    if not known(fits):
        check(fits, lambda: f"{c} channels are no multiple of {r} squared")
    return _shuffled(
        self, (*lead, c // (r * r), h * r, w * r), cpu_format=self.device.type == "cpu"
    )


@rule("aten.pixel_unshuffle.default", padding=padded_rearranging.pixel_unshuffle)
def pixel_unshuffle(self: TensorSpec, downscale_factor: int) -> TensorSpec:
    """Space to channels: ``(*, c, h r, w r) -> (*, c r r, h, w)``."""
    r = downscale_factor
    if len(self.sizes) < 3:
        raise ShapeError(f"needs at least 3 dimensions, got {show(self.sizes)}")
    if r <= 0:
        raise ShapeError(f"downscale_factor must be positive, got {r}")
    *lead, c, h, w = self.sizes
    for size in (h, w):
        fits = size % r == 0
        if not known(fits):
            check(fits, f"the last two sizes of {show(self.sizes)} are no multiples of {r}")
    if self.device.type == "cpu" and any(not known(size >= 1) and size == 0 for size in self.sizes):
        # Eager clones empty tensors as they are.
        return laid_out_like(self)
    return _shuffled(self, (*lead, c * r * r, h // r, w // r), cpu_format=self.device.type == "cpu")


@rule("aten.channel_shuffle.default", padding=padded_rearranging.channel_shuffle)
def channel_shuffle(self: TensorSpec, groups: Size) -> TensorSpec:
    """Channels dealt out among groups."""
    if len(self.sizes) < 3:
        raise ShapeError(f"needs at least 3 dimensions, got {show(self.sizes)}")
    check(groups > 0, lambda: f"groups must be positive, got {groups}")
    check(
        self.sizes[1] % groups == 0,
        lambda: f"{self.sizes[1]} channels are no multiple of {groups} groups",
    )
    if self.device.type == "cpu":
        return _shuffled(self, self.sizes, cpu_format=True)
    b, c, *positions = self.sizes
    apart = (b, groups, c // groups, product(positions))
    if view_strides(self.sizes, self.strides, apart) is None:
        raise ShapeError(f"{self} has no view of sizes {show(apart)}; call contiguous() before")
    return self.fresh()
