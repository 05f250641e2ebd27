"""Ops that only CUDA (or only a fused path) calls: dropout with its mask, RMS norm, cuDNN batch norm."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import layout
from meta_fns.core.checks import FLOATS, need_dtype, need_equal, need_sizes
from meta_fns.core.iterator import laid_out_like
from meta_fns.core.registry import Context, rule
from meta_fns.core.sizes import Size, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import ShapeError
from meta_fns.ops.normalization import batch_norm

__all__: list[str] = []

_HALVES = (torch.float16, torch.bfloat16)


@rule("aten._fused_rms_norm.default")
def fused_rms_norm(
    input: TensorSpec,  # noqa: A002 - name of the schema
    normalized_shape: Sequence[Size],
    weight: TensorSpec | None,
    eps: float | None,
) -> tuple[TensorSpec, TensorSpec]:
    """The input over its root mean square of the last dimensions; and that, inverted, with those of size 1."""
    need_dtype("input", input, FLOATS)
    n = len(normalized_shape)
    lead = len(input.sizes) - n
    if n < 1 or lead < 0:
        raise ShapeError(f"normalized_shape {show(normalized_shape)} does not fit input {show(input.sizes)}")
    for mine, wanted in zip(input.sizes[lead:], normalized_shape, strict=True):
        need_equal(mine, wanted, "normalized_shape does not fit input")
    if weight is not None:
        need_sizes("weight", weight, normalized_shape)
    dtype = torch.float32 if input.dtype in _HALVES else input.dtype
    return input.fresh(), TensorSpec.contiguous((*input.sizes[:lead], *((1,) * n)), dtype, input.device)


@rule("aten._fused_rms_norm_backward.default")
def fused_rms_norm_backward(
    grad_out: TensorSpec,
    input: TensorSpec,  # noqa: A002 - name of the schema
    normalized_shape: Sequence[Size],
    rstd: TensorSpec,
    weight: TensorSpec | None,
    output_mask: Sequence[bool],
) -> tuple[TensorSpec | None, TensorSpec | None]:
    """The gradients of input and weight that are asked for."""
    grad_weight = weight.fresh() if weight is not None and output_mask[1] else None
    return input.fresh() if output_mask[0] else None, grad_weight


@rule("aten.native_dropout.default")
def native_dropout(
    input: TensorSpec,  # noqa: A002 - name of the schema
    p: float,
    train: bool | None,
) -> tuple[TensorSpec, TensorSpec]:
    """The input with elements dropped, and a mask of those that are left."""
    if not 0 <= p <= 1:
        raise ShapeError(f"p must be in [0, 1], got {p}")
    return laid_out_like(input), laid_out_like(input, torch.bool)


@rule("aten._fused_dropout.default")
def fused_dropout(self: TensorSpec, p: float, generator: object = None) -> tuple[TensorSpec, TensorSpec]:
    """The input with elements dropped, and a byte mask of those that are left."""
    return laid_out_like(self), laid_out_like(self, torch.uint8)


@rule("aten.cudnn_batch_norm.default", data_dependent=True)
def cudnn_batch_norm(
    ctx: Context,
    input: TensorSpec,  # noqa: A002 - name of the schema
    weight: TensorSpec,
    bias: TensorSpec | None,
    running_mean: TensorSpec | None,
    running_var: TensorSpec | None,
    training: bool,
    exponential_average_factor: float,
    epsilon: float,
) -> tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec]:
    """`native_batch_norm` with statistics in the weight's dtype; and cuDNN's reserve.

    The size of the reserve in training is cuDNN's secret: an unknown.
    """
    output = batch_norm(input, weight, bias, running_mean, running_var, training, exponential_average_factor, epsilon)[
        0
    ]
    count = input.sizes[1] if training else 0
    stat = TensorSpec.contiguous((count,), weight.dtype, weight.device)
    reserve = ctx.new_size(0, None) if training else 0
    return output, stat, stat, TensorSpec.contiguous((reserve,), torch.uint8, input.device)


@rule("aten.cudnn_batch_norm_backward.default")
def cudnn_batch_norm_backward(
    input: TensorSpec,  # noqa: A002 - name of the schema
    grad_output: TensorSpec,
    weight: TensorSpec,
    running_mean: TensorSpec | None,
    running_var: TensorSpec | None,
    save_mean: TensorSpec | None,
    save_var: TensorSpec | None,
    epsilon: float,
    reserveSpace: TensorSpec,
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """The gradients of input, weight and bias."""
    found = torch.contiguous_format
    if not input.canonical():
        found = layout.suggested_format(input.sizes, input.strides)
    strides = layout.strides_of_format(input.sizes, found)
    grad_input = TensorSpec(input.sizes, strides, 0, input.dtype, input.device)
    return grad_input, weight.fresh(), weight.fresh()
