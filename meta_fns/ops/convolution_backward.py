"""The gradients of a convolution."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import layout
from meta_fns.core.checks import has_zero, need_same, need_sizes
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Shape, Size
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import laid_out_like
from meta_fns.ops.convolution import convolution
from meta_fns.padding import gradients

__all__: list[str] = []


@rule(
    "aten.convolution_backward.default",
    "aten.convolution_backward_overrideable.default",
    padding=gradients.convolution,
)
def convolution_backward(
    grad_output: TensorSpec,
    input: TensorSpec,
    weight: TensorSpec,
    bias_sizes: Sequence[Size] | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
    output_mask: Sequence[bool],
) -> tuple[TensorSpec | None, TensorSpec | None, TensorSpec | None]:
    """The gradients of input, weight and bias that are asked for; channels-last where the output
    is.
    """
    output = convolution(
        input, weight, None, stride, padding, dilation, transposed, output_padding, groups
    )
    need_sizes("grad_output", grad_output, output.sizes)
    need_same("grad_output", grad_output, "input", input)
    bias = (
        TensorSpec.contiguous((output.sizes[1],), input.dtype, input.device)
        if output_mask[2]
        else None
    )
    if has_zero(input.sizes):
        return (
            laid_out_like(input) if output_mask[0] else None,
            laid_out_like(weight) if output_mask[1] else None,
            bias,
        )
    last = not layout.canonical(output.sizes, output.strides)
    grad_weight = None
    if output_mask[1]:
        if (
            last
            and input.dtype is torch.float64
            and layout.is_channels_last(weight.sizes, weight.strides, _LAST)
        ):
            grad_weight = laid_out_like(weight)
        else:
            grad_weight = _laid_out(weight, last)
    return _laid_out(input, last) if output_mask[0] else None, grad_weight, bias


_LAST = torch.channels_last


def _laid_out(spec: TensorSpec, last: bool) -> TensorSpec:
    if not last:
        return spec.fresh()
    return TensorSpec(spec.sizes, _last_strides(spec.sizes), 0, spec.dtype, spec.device)


def _last_strides(sizes: Shape) -> Shape:
    if len(sizes) == 3:
        strides = layout.channels_last_strides((*sizes[:2], 1, sizes[2]))
        return (*strides[:2], strides[3])
    return layout.channels_last_strides(sizes)
