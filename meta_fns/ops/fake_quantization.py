"""Quantisation that stays in floating point: values rounded as if they had been quantised, for
training.

Source: aten/src/ATen/native/quantized/FakeQuantPerTensorAffine.cpp, FakeQuantPerChannelAffine.cpp.
"""

from __future__ import annotations

import torch

from meta_fns.core.checks import FLOATS, need_dtype, need_equal, need_rank
from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, check
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import laid_out_like
from meta_fns.errors import ShapeError

__all__: list[str] = []

_ZERO_POINTS = (torch.int32, torch.float32, torch.float16)


def _rounded(self: TensorSpec, quant_min: Size, quant_max: Size) -> tuple[TensorSpec, TensorSpec]:
    need_dtype("self", self, FLOATS)
    if quant_min > quant_max:
        raise ShapeError(f"quant_min {quant_min} must not be greater than quant_max {quant_max}")
    return laid_out_like(self), laid_out_like(self, torch.bool)


@rule("aten.fake_quantize_per_tensor_affine_cachemask.default", name="fake quantisation")
def fake_quantize(
    self: TensorSpec, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[TensorSpec, TensorSpec]:
    """The values rounded, and which of them lay in the range."""
    check(
        (zero_point >= quant_min) & (zero_point <= quant_max),
        "zero_point must be in the range of the values",
    )
    return _rounded(self, quant_min, quant_max)


@rule(
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
    name="fake quantisation",
)
def fake_quantize_by_tensors(
    self: TensorSpec,
    scale: TensorSpec,
    zero_point: TensorSpec,
    fake_quant_enabled: TensorSpec,
    quant_min: int,
    quant_max: int,
) -> tuple[TensorSpec, TensorSpec]:
    """The same with scale and zero point in tensors."""
    return _rounded(self, quant_min, quant_max)


@rule("aten.fake_quantize_per_channel_affine_cachemask.default", name="fake quantisation")
def fake_quantize_by_channel(
    self: TensorSpec,
    scale: TensorSpec,
    zero_point: TensorSpec,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> tuple[TensorSpec, TensorSpec]:
    """The same with a scale and a zero point for each index along ``axis``."""
    need_rank("scale", scale, 1)
    need_rank("zero_point", zero_point, 1)
    need_dtype("scale", scale, (torch.float32, torch.bfloat16))
    need_dtype("zero_point", zero_point, _ZERO_POINTS)
    need_equal(scale.sizes[0], zero_point.sizes[0], "scale and zero_point")
    if axis < 0:
        raise ShapeError(f"axis must not be negative, got {axis}")
    need_equal(
        scale.sizes[0], self.sizes[wrap_dim(axis, len(self.sizes))], "scale and self along the axis"
    )
    return _rounded(self, quant_min, quant_max)
