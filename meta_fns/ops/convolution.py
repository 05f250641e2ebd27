"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import layout
from meta_fns.core.checks import has_zero, need_same, need_sizes, refuse_unless_empty
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Shape, Size, check, empty, known, same, same_shape, show, static
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import iterate, laid_out_like
from meta_fns.core.type_promotion import result_type
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.padding import convolution as padded_convolution
from meta_fns.padding import gradients

__all__ = ["conv_sizes", "convolution"]


def _each(values: Sequence[Size], n: int, name: str) -> Sequence[Size]:
    if len(values) == n:
        return values
    if len(values) == 1:
        return list(values) * n
    raise ShapeError(f"{name} needs 1 or {n} values, got {list(values)}")


def conv_sizes(
    input: Shape,
    weight: Shape,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
) -> Shape:
    """Sizes of the output of a convolution with a batch dimension.

    ``(n, c, *spatial), (o, c / groups, *kernel) -> (n, o, *[(size + 2 padding - dilation (kernel -
    1) - 1) // stride + 1])``.
    """
    out: list[Size] = [input[0], weight[1] * groups if transposed else weight[0]]
    for i, (size, kernel) in enumerate(zip(input[2:], weight[2:], strict=True)):
        reach = dilation[i] * (kernel - 1)
        if transposed:
            out.append((size - 1) * stride[i] - 2 * padding[i] + reach + output_padding[i] + 1)
            continue
        span = size + 2 * padding[i] - reach - 1
        if not known(span >= 0):
            check(
                span >= 0,
                lambda: (
                    f"the kernel {show(weight[2:])} is larger than the padded input {show(input)}"
                ),
            )
        step = stride[i]
        out.append(span + 1 if type(step) is int and step == 1 else span // step + 1)
    return tuple(out)


@rule(
    "aten.convolution.default",
    "aten.convolution_overrideable.default",
    padding=padded_convolution.convolution,
)
def convolution(
    input: TensorSpec,
    weight: TensorSpec,
    bias: TensorSpec | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
) -> TensorSpec:
    """A convolution over 1 to 3 spatial dimensions; sizes as ``conv_sizes`` says.

    Channels-last inputs or weights give a channels-last output. (Over one dimension eager makes the
    input contiguous first.)
    """
    n = len(weight.sizes) - 2
    if n < 1:
        raise ShapeError(f"weight needs at least 3 dimensions, got {show(weight.sizes)}")
    if len(input.sizes) != n + 2:
        raise ShapeError(f"input {show(input.sizes)} does not fit weight {show(weight.sizes)}")
    stride, padding, dilation = (
        _each(stride, n, "stride"),
        _each(padding, n, "padding"),
        _each(dilation, n, "dilation"),
    )
    output_padding = _each(output_padding, n, "output_padding")
    for value in padding:
        check(value >= 0, "padding must not be negative")
    for value in (*stride, *dilation, groups):
        check(value > 0, "stride, dilation and groups must be positive")
    _check_channels(input, weight, bias, transposed, groups)
    dtype = _dtype(input, weight, bias)
    sizes = conv_sizes(
        input.sizes, weight.sizes, stride, padding, dilation, transposed, output_padding, groups
    )
    for size in sizes[2:]:
        if not known(size > 0):
            check(
                size > 0,
                lambda: f"the output would be of sizes {show(sizes)}, from {show(input.sizes)}",
            )
    if input.sizes[1] == 0:
        sizes = (sizes[0], 0, *sizes[2:])  # whatever the weight has
    if empty(input.sizes):
        strides = layout.contiguous_strides(sizes)
        if same_shape(input.sizes, sizes) and input.sizes[1] != 0:  # the product, seen as it is
            seen = input if n > 1 else _as_4d(input)
            strides = iterate((seen, weight.view((), ())), dtype, dtype).strides
            strides = strides if n > 1 else _without_height(strides)
    elif transposed and input.device.type != "cpu" and _is_too_large(output_padding, stride):
        strides = layout.contiguous_strides(sizes)
    elif n == 1:
        strides = layout.contiguous_strides(sizes)
        seen = input if static(input.sizes) and input.is_contiguous() else input.fresh()
        if _like_channels_last(_as_4d(seen)) or _like_channels_last(_as_4d(weight)):
            strides = _without_height(layout.channels_last_strides((*sizes[:2], 1, sizes[2])))
    elif _like_channels_last(input) or _like_channels_last(weight):
        strides = layout.channels_last_strides(sizes)
    else:
        strides = layout.contiguous_strides(sizes)
    return TensorSpec(sizes, strides, 0, dtype, input.device)


def _is_too_large(output_padding: Sequence[Size], stride: Sequence[Size]) -> bool:
    """Return whether cuDNN does not take an output padding: torch's own kernels have contiguous
    results.

    Source: is_output_padding_big in ATen/native/Convolution.cpp.
    """
    return any(bool(more >= step) for more, step in zip(output_padding, stride, strict=True))


def _dtype(input: TensorSpec, weight: TensorSpec, bias: TensorSpec | None) -> torch.dtype:
    """The dtype that all three have; for an input without samples or channels, which eager only
    multiplies by a weight, the promoted one.

    Raises: DtypeError where the dtypes differ otherwise.
    """
    if input.dtype is weight.dtype and (bias is None or bias.dtype is input.dtype):
        return input.dtype
    dtypes = [spec.dtype for spec in (input, weight, bias) if spec is not None]
    refuse_unless_empty(
        f"input, weight and bias must have one dtype, got {dtypes}", input.sizes[:2]
    )
    if input.sizes[1] == 0:
        dtype = result_type((input, weight))
    else:
        dtype = result_type((input, weight.view((), ())))
    if bias is not None and not torch.can_cast(
        result_type((input.with_(dtype=dtype), bias.view((), ()))), dtype
    ):
        raise DtypeError(f"a bias of {bias.dtype} cannot be added to {dtype}")
    return dtype


def _check_channels(
    input: TensorSpec, weight: TensorSpec, bias: TensorSpec | None, transposed: bool, groups: Size
) -> None:
    channels = input.sizes[1]
    for size in input.sizes[2:]:
        if not known(size >= 1):
            fine = (size >= 1) | (input.sizes[0] == 0) | (channels == 0)
            check(
                fine,
                lambda: f"only the batch or the channels may be empty, got {show(input.sizes)}",
            )
    if transposed:
        check(
            weight.sizes[0] == channels,
            lambda: f"weight {show(weight.sizes)} does not fit input {show(input.sizes)}",
        )
        check(
            channels % groups == 0,
            lambda: f"{channels} input channels are no multiple of {groups} groups",
        )
        if not known(channels >= groups):
            check(
                channels >= groups,
                lambda: f"{channels} input channels are fewer than {groups} groups",
            )
        for kernel in weight.sizes[2:]:
            if not known(kernel >= 1):
                check(
                    kernel >= 1,
                    lambda: f"kernels must not be empty, got weight {show(weight.sizes)}",
                )
        if not known(weight.sizes[1] >= 1):
            check(
                weight.sizes[1] >= 1, lambda: f"weight must not be empty, got {show(weight.sizes)}"
            )
        out = weight.sizes[1] * groups
    else:
        wanted = (
            weight.sizes[1] if type(groups) is int and groups == 1 else weight.sizes[1] * groups
        )
        if not same(wanted, channels):
            check(
                wanted == channels,
                lambda: f"weight {show(weight.sizes)} does not fit input {show(input.sizes)}",
            )
        for kernel in weight.sizes[2:]:
            if not known(kernel >= 1):
                check(
                    (kernel >= 1) | (channels == 0),
                    lambda: f"kernels must not be empty, got weight {show(weight.sizes)}",
                )
        out = weight.sizes[0]
        if not (type(groups) is int and groups == 1):
            check(
                out % groups == 0,
                lambda: f"{out} output channels are no multiple of {groups} groups",
            )
        if not known(out >= groups):
            check(out >= groups, lambda: f"{out} output channels are fewer than {groups} groups")
    if bias is not None:
        if len(bias.sizes) != 1:
            raise ShapeError(f"bias must be a vector, got {show(bias.sizes)}")
        check(bias.sizes[0] == out, lambda: f"bias {show(bias.sizes)} must be of size {out}")


def _as_4d(spec: TensorSpec) -> TensorSpec:
    """A 3-d tensor as eager sees it: with a height of 1."""
    a, b, c = spec.sizes
    x, y, z = spec.strides
    return spec.view((a, b, 1, c), (x, y, c * z, z))


def _without_height(strides: Shape) -> Shape:
    return (strides[0], strides[1], strides[3])


def _like_channels_last(spec: TensorSpec) -> bool:
    if spec.canonical() and not static(spec.sizes):
        return False
    return layout.is_channels_last_strides(spec.sizes, spec.strides)


# -- gradients -------------------------------------------------------------------------------------


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
