"""Softmax, layer norm, batch norm, RMS norm."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import dense, layout
from meta_fns.core.checks import (
    FLOATS,
    HALVES,
    need_dtype,
    need_equal,
    need_sizes,
    refuse_unless_empty,
)
from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import Context, rule
from meta_fns.core.sizes import Size, check, empty, known, same, show, static
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import laid_out_like
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.padding import normalization as padded_normalization
from meta_fns.padding import reductions as padded_reductions

__all__ = ["batch_norm", "batch_norm_like", "layer_norm", "softmax"]


@rule("aten._softmax.default", "aten._log_softmax.default", padding=padded_reductions.softmax)
def softmax(self: TensorSpec, dim: int, half_to_float: bool) -> TensorSpec:
    """Softmax along ``dim``, contiguous; ``half_to_float`` (CUDA) reads float16 and gives
    float32.
    """
    wrap_dim(dim, len(self.sizes))
    if not self.dtype.is_floating_point:
        refuse_unless_empty(f"softmax is not implemented for {self.dtype}", self.sizes)
    if half_to_float:
        if self.device.type == "cpu" or self.dtype is not torch.float16:
            raise DtypeError("half_to_float needs a float16 tensor on CUDA")
        return self.fresh(None, torch.float32)
    return self.fresh()


@rule("aten._safe_softmax.default", padding=padded_reductions.softmax)
def safe_softmax(self: TensorSpec, dim: int, dtype: torch.dtype | None = None) -> TensorSpec:
    """Softmax along ``dim`` that gives zeros for rows that are all -inf."""
    wrap_dim(dim, len(self.sizes))
    if self.dtype.is_complex:
        raise DtypeError(f"not implemented for {self.dtype}")
    if not (dtype or self.dtype).is_floating_point:
        refuse_unless_empty(f"softmax is not implemented for {dtype or self.dtype}", self.sizes)
    return self.fresh(None, dtype)


def _per_channel(name: str, spec: TensorSpec | None, size: Size) -> None:
    if spec is None:
        return
    if len(spec.sizes) != 1:
        raise ShapeError(f"{name} must be a vector, got {show(spec.sizes)}")
    if not same(spec.sizes[0], size):
        check(spec.sizes[0] == size, lambda: f"{name} {show(spec.sizes)} must be of size {size}")


def _stat_dtype(input: TensorSpec, *parameters: TensorSpec | None) -> torch.dtype:
    """The dtype of saved means.

    On CPU that of the parameters (float32 beside a bfloat16 input), on CUDA float32 for halves.
    """
    if input.dtype in HALVES:
        if input.device.type != "cpu":
            return torch.float32
        for parameter in parameters:
            if parameter is not None and parameter.dtype is torch.float32:
                return torch.float32
    return input.dtype


@rule("aten.native_layer_norm.default", padding=padded_normalization.layer_norm)
def layer_norm(
    input: TensorSpec,
    normalized_shape: Sequence[Size],
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    eps: float,
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """The input normalised over its last dimensions, contiguous; mean and 1/deviation, those
    dimensions of size 1.
    """
    n = len(normalized_shape)
    if n < 1 or len(input.sizes) < n:
        raise ShapeError(
            f"normalized_shape {show(normalized_shape)} does not fit input {show(input.sizes)}"
        )
    if not input.dtype.is_floating_point:
        raise DtypeError(f"layer norm is not implemented for {input.dtype}")
    given = [p.dtype for p in (weight, bias) if p is not None]
    mixed = input.dtype in HALVES and all(dtype is torch.float32 for dtype in given)
    if not mixed and any(dtype is not input.dtype for dtype in given):
        raise DtypeError(f"parameters of {given} do not go with an input of {input.dtype}")
    lead = len(input.sizes) - n
    for name, sizes in (
        ("input", input.sizes[lead:]),
        ("weight", None if weight is None else weight.sizes),
        ("bias", None if bias is None else bias.sizes),
    ):
        if sizes is None:
            continue
        if len(sizes) != n:
            raise ShapeError(f"{name} {show(sizes)} must have the sizes {show(normalized_shape)}")
        for size, wanted in zip(sizes, normalized_shape, strict=True):
            if size is not wanted and not same(size, wanted):
                check(
                    size == wanted,
                    lambda: (
                        f"normalized_shape {show(normalized_shape)} does not fit "
                        f"{show(input.sizes)}"
                    ),
                )
    stat = TensorSpec.contiguous(
        (*input.sizes[:lead], *((1,) * n)), _stat_dtype(input, weight, bias), input.device
    )
    return input.fresh(), stat, stat


@rule("aten.native_batch_norm.default", padding=padded_normalization.batch_norm)
def batch_norm(
    input: TensorSpec,
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    running_mean: TensorSpec | None,
    running_var: TensorSpec | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """The input normalised per channel; saved mean and 1/deviation, empty outside training."""
    if len(input.sizes) < 2:
        raise ShapeError(f"input needs at least 2 dimensions, got {show(input.sizes)}")
    channels = input.sizes[1]
    for name, spec in (
        ("weight", weight),
        ("bias", bias),
        ("running_mean", running_mean),
        ("running_var", running_var),
    ):
        _per_channel(name, spec, channels)
    if not training and not empty(input.sizes) and (running_mean is None or running_var is None):
        raise ShapeError("running_mean and running_var must be given in evaluation mode")
    if training and input.device.type == "cpu":
        for size in input.sizes:
            if not known(size != 0):
                check(
                    size != 0,
                    lambda: f"training needs at least one element, got {show(input.sizes)}",
                )
    # ATen/native/cuda/Normalization.cu keeps all layouts
    output = batch_norm_like(input) if input.device.type == "cpu" else laid_out_like(input)
    count = channels if training or input.device.type != "cpu" else 0
    stat = TensorSpec.contiguous(
        (count,), _stat_dtype(input, weight, bias, running_mean, running_var), input.device
    )
    return output, stat, stat


@rule("aten._native_batch_norm_legit.default")
def batch_norm_legit(
    input: TensorSpec,
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    running_mean: TensorSpec,
    running_var: TensorSpec,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """``native_batch_norm`` whose running statistics are arguments that it writes to."""
    return batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)


@rule("aten._native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    input: TensorSpec,
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """``native_batch_norm`` without running statistics."""
    return batch_norm(input, weight, bias, None, None, training, momentum, eps)


def batch_norm_like(input: TensorSpec) -> TensorSpec:
    """Return the result of batch norm: channels-last if the input is just that, else contiguous."""
    if input.canonical() or len(input.sizes) not in (4, 5):
        return input.fresh()
    last = torch.channels_last if len(input.sizes) == 4 else torch.channels_last_3d
    if static(input.sizes) and static(input.strides):
        keeps = not input.is_contiguous() and input.is_contiguous(last)
    else:
        keeps = layout.suggested_format(input.sizes, input.strides) is last
        keeps = keeps and dense.is_dense(input.sizes, input.strides)
        keeps = keeps and not (
            input.device.type == "cpu" and layout.plainly_contiguous(input.sizes, input.strides)
        )
        keeps = keeps or (
            layout.is_channels_last(input.sizes, input.strides, last) and not input.is_contiguous()
        )
    if not keeps:
        return input.fresh()
    return TensorSpec(
        input.sizes, layout.channels_last_strides(input.sizes), 0, input.dtype, input.device
    )


@rule("aten._fused_rms_norm.default", padding=padded_normalization.layer_norm)
def fused_rms_norm(
    input: TensorSpec,
    normalized_shape: Sequence[Size],
    weight: TensorSpec | None,
    eps: float | None,
) -> tuple[TensorSpec, TensorSpec]:
    """The input over its root mean square of the last dimensions; and that, inverted, with those of
    size 1.
    """
    need_dtype("input", input, FLOATS)
    n = len(normalized_shape)
    lead = len(input.sizes) - n
    if n < 1 or lead < 0:
        raise ShapeError(
            f"normalized_shape {show(normalized_shape)} does not fit input {show(input.sizes)}"
        )
    for mine, wanted in zip(input.sizes[lead:], normalized_shape, strict=True):
        need_equal(mine, wanted, "normalized_shape does not fit input")
    if weight is not None:
        need_sizes("weight", weight, normalized_shape)
    dtype = torch.float32 if input.dtype in HALVES else input.dtype
    return input.fresh(), TensorSpec.contiguous(
        (*input.sizes[:lead], *((1,) * n)), dtype, input.device
    )


@rule("aten.cudnn_batch_norm.default", data_dependent=True, padding=padded_normalization.batch_norm)
def cudnn_batch_norm(
    ctx: Context,
    input: TensorSpec,
    weight: TensorSpec,
    bias: TensorSpec | None,
    running_mean: TensorSpec | None,
    running_var: TensorSpec | None,
    training: bool,
    exponential_average_factor: float,
    epsilon: float,
) -> tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec]:
    """``native_batch_norm`` with statistics in the weight's dtype; and cuDNN's reserve.

    The size of the reserve in training is cuDNN's secret: an unknown.
    """
    batch_norm(
        input,
        weight,
        bias,
        running_mean,
        running_var,
        training,
        exponential_average_factor,
        epsilon,
    )
    count = input.sizes[1] if training else 0
    stat = TensorSpec.contiguous((count,), weight.dtype, weight.device)
    reserve = ctx.new_size(0, None) if training else 0
    reserved = TensorSpec.contiguous((reserve,), torch.uint8, input.device)
    return batch_norm_like(input), stat, stat, reserved
