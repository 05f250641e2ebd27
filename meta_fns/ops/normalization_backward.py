"""Gradients of softmax and of the normalisations; group norm and weight norm, both ways."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import dense, layout
from meta_fns.core.checks import (
    FLOATS,
    HALVES,
    need_dtype,
    need_equal,
    need_numel,
    need_positive,
    need_same,
    need_same_sizes,
    need_sizes,
)
from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, check, known, product, same, show
from meta_fns.core.spec import TensorSpec, in_suggested_format
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.normalization import batch_norm_like
from meta_fns.padding import gradients
from meta_fns.padding.normalization import group_norm

__all__ = ["stat_dtype"]


@rule("aten._log_softmax_backward_data.default", padding=gradients.softmax)
def log_softmax_backward(
    grad_output: TensorSpec, output: TensorSpec, dim: int, input_dtype: torch.dtype
) -> TensorSpec:
    """The gradient of log softmax from its output: contiguous, in the dtype of the input."""
    wrap_dim(dim, len(grad_output.sizes))
    need_same("grad_output", grad_output, "output", output)
    return _softmax_gradient(grad_output, input_dtype)


@rule("aten._softmax_backward_data.default", padding=gradients.softmax)
def softmax_backward(
    grad_output: TensorSpec, output: TensorSpec, dim: int, input_dtype: torch.dtype
) -> TensorSpec:
    """The gradient of softmax from its output: contiguous, in the dtype of the input."""
    wrap_dim(dim, len(grad_output.sizes))
    need_same_sizes("grad_output", grad_output, "output", output)
    need_same("grad_output", grad_output, "output", output)
    return _softmax_gradient(grad_output, input_dtype)


def _softmax_gradient(grad_output: TensorSpec, input_dtype: torch.dtype) -> TensorSpec:
    need_dtype("grad_output", grad_output, FLOATS)
    halves = grad_output.dtype is torch.float32 and input_dtype is torch.float16
    return grad_output.fresh(None, input_dtype if halves else None)


def stat_dtype(input: TensorSpec, weight: TensorSpec | None) -> torch.dtype:
    """The dtype of saved statistics: float32 beside half inputs with float32 parameters."""
    if input.dtype in HALVES and weight is not None and weight.dtype is torch.float32:
        return torch.float32
    return input.dtype


def _contiguous(spec: TensorSpec | None) -> TensorSpec | None:
    return None if spec is None else spec.fresh()


@rule("aten.native_layer_norm_backward.default", padding=gradients.layer_norm)
def native_layer_norm_backward(
    grad_out: TensorSpec,
    input: TensorSpec,
    normalized_shape: Sequence[Size],
    mean: TensorSpec,
    rstd: TensorSpec,
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    output_mask: Sequence[bool],
) -> tuple[TensorSpec | None, TensorSpec | None, TensorSpec | None]:
    """The gradients of input, weight and bias that are asked for, contiguous."""
    need_dtype("input", input, FLOATS)
    need_same("grad_out", grad_out, "input", input)
    lead = len(input.sizes) - len(normalized_shape)
    if lead < 0:
        raise ShapeError(
            f"normalized_shape {show(normalized_shape)} does not fit input {show(input.sizes)}"
        )
    for a, b in zip(input.sizes[lead:], normalized_shape, strict=True):
        need_equal(a, b, "normalized_shape does not fit input")
    if weight is not None:
        need_sizes("weight", weight, normalized_shape)
    if bias is not None:
        need_sizes("bias", bias, normalized_shape)
    return (
        input.fresh() if output_mask[0] else None,
        _contiguous(weight) if output_mask[1] else None,
        _contiguous(bias) if output_mask[2] else None,
    )


@rule("aten.native_batch_norm_backward.default", padding=gradients.batch_norm)
def native_batch_norm_backward(
    grad_out: TensorSpec,
    input: TensorSpec,
    weight: TensorSpec | None,
    running_mean: TensorSpec | None,
    running_var: TensorSpec | None,
    save_mean: TensorSpec | None,
    save_invstd: TensorSpec | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[TensorSpec | None, TensorSpec | None, TensorSpec | None]:
    """The gradients of input, weight and bias that are asked for; the first laid out as the input
    suggests.
    """
    need_dtype("input", input, FLOATS)
    need_same("grad_out", grad_out, "input", input)
    channels = input.sizes[1]
    dtype = input.dtype if weight is None else weight.dtype
    grad_input = batch_norm_like(input) if output_mask[0] else None
    vector = TensorSpec.contiguous((channels,), dtype, input.device)
    return grad_input, vector if output_mask[1] else None, vector if output_mask[2] else None


@rule("aten.batch_norm_backward.default")
def batch_norm_backward(
    grad_out: TensorSpec,
    input: TensorSpec,
    weight: TensorSpec,
    running_mean: TensorSpec | None,
    running_var: TensorSpec | None,
    save_mean: TensorSpec | None,
    save_var: TensorSpec | None,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: TensorSpec,
) -> tuple[TensorSpec | None, TensorSpec | None, TensorSpec | None]:
    """``native_batch_norm_backward`` of ``_batch_norm_with_update``."""
    return native_batch_norm_backward(
        grad_out,
        input,
        weight,
        running_mean,
        running_var,
        save_mean,
        save_var,
        update,
        eps,
        output_mask,
    )


def _group_norm_accepts(input: torch.Tensor) -> bool:
    batch, channels, spatial = input.shape
    try:
        torch.native_group_norm(input, None, None, batch, channels, spatial, 1, 1e-5)
    except RuntimeError:
        return False
    return True


# Before 2.14, torch refuses an input that is not contiguous.  Since then torch refuses no channels
# and no places.
_ANY_LAYOUT = _group_norm_accepts(torch.ones(1, 2, 2, device="cpu").transpose(1, 2))
_NO_PLACES = _group_norm_accepts(torch.ones(1, 1, 0, device="cpu"))


@rule("aten.native_group_norm.default", padding=group_norm)
def native_group_norm(
    input: TensorSpec,
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    N: Size,
    C: Size,
    HxW: Size,
    group: int,
    eps: float,
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """The input normalised within groups of channels; mean and 1/deviation ``(N, group)``."""
    _group_norm_checks(input, weight, bias, N, C, HxW, group)
    stat = TensorSpec.contiguous((N, group), stat_dtype(input, weight), input.device)
    return _suggested(input, strict=not _ANY_LAYOUT), stat, stat


def _suggested(input: TensorSpec, *, strict: bool) -> TensorSpec:
    """Fresh, in the memory format that the input suggests on CPU, contiguous on CUDA.

    ``strict`` requires the input to be contiguous in that.
    """
    if input.canonical():
        return input.fresh()
    found = torch.contiguous_format
    if input.device.type == "cpu":
        found = layout.suggested_format(input.sizes, input.strides)
    if strict and not input.is_contiguous(found):
        raise ShapeError(f"input must be contiguous, got {input}")
    return TensorSpec(
        input.sizes, layout.strides_of_format(input.sizes, found), 0, input.dtype, input.device
    )


def _group_norm_checks(
    input: TensorSpec,
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    n: Size,
    channels: Size,
    spatial: Size,
    group: int,
) -> None:
    need_dtype("input", input, FLOATS)
    if group <= 0:
        raise ShapeError(f"the number of groups must be positive, got {group}")
    divisible = channels % group == 0
    if divisible is not True and not known(divisible):
        check(divisible, lambda: f"{channels} channels are no multiple of {group} groups")
    for name, spec in (("weight", weight), ("bias", bias)):
        if spec is not None:
            need_sizes(name, spec, (channels,))
            if spec.dtype is not input.dtype and not (
                input.dtype in HALVES and spec.dtype is torch.float32 and input.device.type == "cpu"
            ):
                raise DtypeError(f"{name} is of {spec.dtype}, input of {input.dtype}")
    if not _NO_PLACES:
        need_positive("channels and places", (channels, spatial))
    if _ANY_LAYOUT and same(n, 0):
        return  # a torch that takes any layout does not compare the sizes of an empty batch
    total, wanted = input.numel(), product((n, channels, spatial))
    if len(input.sizes) > 1 and same(input.sizes[0], n) and same(input.sizes[1], channels):
        total, wanted = product(input.sizes[2:]), spatial
    if not same(total, wanted):
        check(
            total == wanted,
            lambda: f"input {show(input.sizes)} is not ({n}, {channels}, {spatial})",
        )


@rule("aten.native_group_norm_backward.default", padding=gradients.group_norm)
def native_group_norm_backward(
    grad_out: TensorSpec,
    input: TensorSpec,
    mean: TensorSpec,
    rstd: TensorSpec,
    weight: TensorSpec | None,
    N: Size,
    C: Size,
    HxW: Size,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[TensorSpec | None, TensorSpec | None, TensorSpec | None]:
    """The gradients of input, weight and bias that are asked for."""
    for name, spec in (("grad_out", grad_out), ("input", input)):
        need_dtype(name, spec, FLOATS)
    if not (_ANY_LAYOUT and same(N, 0)):  # see _group_norm_checks
        if group <= 0:
            raise ShapeError(f"the number of groups must be positive, got {group}")
        for name, spec in (("grad_out", grad_out), ("input", input)):
            need_numel(name, spec, (N, C, HxW))
        for name, spec in (("mean", mean), ("rstd", rstd)):
            need_numel(name, spec, (N, group))
        if weight is not None:
            need_numel("weight", weight, (C,))
    vector = TensorSpec.contiguous(
        (C,), weight.dtype if weight is not None else input.dtype, input.device
    )
    return (
        _suggested(input, strict=False) if output_mask[0] else None,
        vector if output_mask[1] else None,
        vector if output_mask[2] else None,
    )


@rule("aten._weight_norm_interface.default")
def weight_norm_interface(
    v: TensorSpec, g: TensorSpec, dim: int = 0
) -> tuple[TensorSpec, TensorSpec]:
    """``v`` scaled to the norms ``g`` along ``dim``, and its own norms."""
    need_dtype("v", v, FLOATS)
    last = len(v.sizes) - 1
    if dim not in (0, last):
        raise ShapeError(
            f"dim must be the first or the last of {len(v.sizes)} dimensions, got {dim}"
        )
    dtype = torch.float32 if g.dtype is torch.bfloat16 else g.dtype
    norms = TensorSpec(g.sizes, dense.like_strides(g.sizes, g.strides, None), 0, dtype, g.device)
    return v.fresh(), norms


@rule("aten._weight_norm_interface_backward.default")
def weight_norm_interface_backward(
    grad_w: TensorSpec, saved_v: TensorSpec, saved_g: TensorSpec, saved_norms: TensorSpec, dim: int
) -> tuple[TensorSpec, TensorSpec]:
    """The gradients of v and g, contiguous."""
    return saved_v.fresh(), saved_g.fresh()


@rule("aten._fused_rms_norm_backward.default", padding=gradients.layer_norm)
def fused_rms_norm_backward(
    grad_out: TensorSpec,
    input: TensorSpec,
    normalized_shape: Sequence[Size],
    rstd: TensorSpec,
    weight: TensorSpec | None,
    output_mask: Sequence[bool],
) -> tuple[TensorSpec | None, TensorSpec | None]:
    """The gradients of input and weight that are asked for."""
    grad_weight = weight.fresh() if weight is not None and output_mask[1] else None
    return input.fresh() if output_mask[0] else None, grad_weight


@rule("aten.cudnn_batch_norm_backward.default")
def cudnn_batch_norm_backward(
    input: TensorSpec,
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
    return in_suggested_format(input), weight.fresh(), weight.fresh()
