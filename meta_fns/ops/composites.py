# mypy: disable-error-code="no-any-return"
"""Composite operators that people call by name, as the operators that they are made of.

Source: the functions of these names in aten/src/ATen/native (LinearAlgebra.cpp, Convolution.cpp,
TensorShape.cpp ...).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.broadcasting import broadcast
from meta_fns.core.dims import wrap_dim
from meta_fns.core.inference import infer
from meta_fns.core.registry import composite
from meta_fns.core.sizes import Size, ceil_div, check, product, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import ShapeError
from meta_fns.ops.matmul import inner, need_product, need_same_dtype

_SAME = {
    "abs": "absolute",
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "neg": "negative",
    "trunc": "fix",
    "div": "divide",
    "mul": "multiply",
    "gt": "greater",
    "lt": "less",
    "ge": "greater_equal",
    "le": "less_equal",
    "ne": "not_equal",
}
"""Operators that have a second name, by the first."""
_OVERLOADS = ("default", "Tensor", "Scalar", "Tensor_mode", "Scalar_mode")


def _register_second_names() -> None:
    for first, second in _SAME.items():
        for suffix in ("", "_"):
            one, other = (getattr(torch.ops.aten, name + suffix, None) for name in (first, second))
            for overload in _OVERLOADS:
                target = getattr(one, overload, None)
                named = getattr(other, overload, None)
                if target is not None and named is not None:
                    composite(str(named))(_under_another_name(str(target)))


def _under_another_name(overload: str) -> Any:
    return lambda *args, **kwargs: infer(overload, args, kwargs)


_register_second_names()


# -- products --------------------------------------------------------------------------------------


@composite("aten.matmul.default")
def matmul(self: TensorSpec, other: TensorSpec) -> TensorSpec:
    """``(*batch, n, k) @ (*batch, k, m) -> (*batch, n, m)``; a vector has no ``n``, or no ``m``."""
    a, b = self.sizes, other.sizes
    if not a or not b:
        raise ShapeError(f"both operands of matmul need a dimension, got {show(a)} @ {show(b)}")
    need_same_dtype(self, other, "the operands of matmul")
    inner(a[-1], b[-2] if len(b) > 1 else b[0], self, other)
    sizes = (*broadcast(a[:-2], b[:-2]), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))
    need_product(self.dtype, (*sizes, a[-1]))
    return TensorSpec.contiguous(sizes, self.dtype, self.device)


@composite("aten.linear.default")
def linear(input: TensorSpec, weight: TensorSpec, bias: TensorSpec | None = None) -> TensorSpec:
    """``(*, k), (m, k) -> (*, m)``."""
    if len(weight.sizes) not in (1, 2):
        raise ShapeError(f"weight must have 1 or 2 dimensions, got {show(weight.sizes)}")
    turned = infer("aten.t.default", (weight,)) if len(weight.sizes) == 2 else weight
    result: TensorSpec = matmul(input, turned)
    if bias is None:
        return result
    return infer("aten.add.Tensor", (result, bias))


@composite("aten.outer.default", "aten.ger.default")
def outer(self: TensorSpec, vec2: TensorSpec) -> TensorSpec:
    """``(n), (m) -> (n, m)``."""
    for name, spec in (("self", self), ("vec2", vec2)):
        if len(spec.sizes) != 1:
            raise ShapeError(f"{name} must have 1 dimension, got {show(spec.sizes)}")
    column = infer("aten.unsqueeze.default", (self, 1))
    return infer("aten.mul.Tensor", (column, vec2))


# -- convolutions ----------------------------------------------------------------------------------


def _listed(value: Any, number: int) -> list[Size]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * number if len(values) == 1 else values


def _convolve(input: TensorSpec, number: int, *args: Any) -> TensorSpec:
    """A convolution over ``number`` dimensions, of one input or of a batch of them."""
    dim = len(input.sizes)
    if dim not in (number + 1, number + 2):
        raise ShapeError(
            f"input needs {number + 1} or {number + 2} dimensions, got {show(input.sizes)}"
        )
    if dim == number + 2:
        return infer("aten.convolution.default", (input, *args))
    whole = infer("aten.unsqueeze.default", (input, 0))
    return infer("aten.squeeze.dim", (infer("aten.convolution.default", (whole, *args)), 0))


def _register_convolutions() -> None:
    for number in (1, 2, 3):
        composite(f"aten.conv{number}d.default")(_convolution_over(number))
        composite(f"aten.conv{number}d.padding")(_padded_convolution_over(number))
        transposed = "default" if number == 1 else "input"
        composite(f"aten.conv_transpose{number}d.{transposed}")(_transposed_over(number))


def _convolution_over(n: int) -> Any:
    def conv(
        input: TensorSpec,
        weight: TensorSpec,
        bias: TensorSpec | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: Size = 1,
    ) -> TensorSpec:
        lists = (_listed(each, n) for each in (stride, padding, dilation))
        return _convolve(input, n, weight, bias, *lists, False, [0] * n, groups)

    return conv


def _padded_convolution_over(n: int) -> Any:
    def conv(
        input: TensorSpec,
        weight: TensorSpec,
        bias: TensorSpec | None = None,
        stride: Any = 1,
        padding: str = "valid",
        dilation: Any = 1,
        groups: Size = 1,
    ) -> TensorSpec:
        steps, holes = _listed(stride, n), _listed(dilation, n)
        if padding not in ("valid", "same"):
            raise ShapeError(f"padding must be 'valid' or 'same', not {padding!r}")
        if padding == "valid":
            return _convolve(input, n, weight, bias, steps, [0] * n, holes, False, [0] * n, groups)
        if any(type(step) is not int or step != 1 for step in steps):
            raise ShapeError(f"padding='same' needs strides of 1, got {steps}")
        total = [hole * (kernel - 1) for hole, kernel in zip(holes, weight.sizes[2:], strict=True)]
        if any(each % 2 != 0 for each in total):
            more = [part for each in reversed(total) for part in (0, each % 2)]
            input = infer("aten.constant_pad_nd.default", (input, more, 0))
        left = [each // 2 for each in total]
        return _convolve(input, n, weight, bias, steps, left, holes, False, [0] * n, groups)

    return conv


def _transposed_over(n: int) -> Any:
    def conv(
        input: TensorSpec,
        weight: TensorSpec,
        bias: TensorSpec | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: Size = 1,
        dilation: Any = 1,
    ) -> TensorSpec:
        steps, pads, more, holes = (
            _listed(each, n) for each in (stride, padding, output_padding, dilation)
        )
        return _convolve(input, n, weight, bias, steps, pads, holes, True, more, groups)

    return conv


_register_convolutions()


# -- views -----------------------------------------------------------------------------------------


@composite("aten.flatten.using_ints")
def flatten(self: TensorSpec, start_dim: int = 0, end_dim: int = -1) -> TensorSpec:
    """``(a, b, c, d) -> (a, b*c, d)`` for dimensions 1 to 2."""
    if not self.sizes:
        return infer("aten.reshape.default", (self, [1]))
    start, end = (wrap_dim(dim, len(self.sizes)) for dim in (start_dim, end_dim))
    if start > end:
        raise ShapeError(f"start_dim {start_dim} comes after end_dim {end_dim}")
    if start == end:
        return self
    merged = product(self.sizes[start : end + 1])
    return infer(
        "aten.reshape.default", (self, [*self.sizes[:start], merged, *self.sizes[end + 1 :]])
    )


@composite("aten.ravel.default")
def ravel(self: TensorSpec) -> TensorSpec:
    """All elements in one dimension."""
    return infer("aten.reshape.default", (self, [self.numel()]))


@composite("aten.narrow.default")
def narrow(self: TensorSpec, dim: int, start: Size, length: Size) -> TensorSpec:
    """``length`` elements of one dimension from ``start`` on."""
    if not self.sizes:
        raise ShapeError("narrow() needs a dimension")
    size = self.sizes[wrap_dim(dim, len(self.sizes))]
    check(length >= 0, "the length must not be negative")
    if type(start) is not int or start < 0:
        start = start + size if start < 0 else start
    check(
        (start >= 0) & (start + length <= size),
        lambda: f"start and length reach out of a dimension of {size}",
    )
    return infer("aten.slice.Tensor", (self, dim, start, start + length, 1))


@composite("aten.chunk.default")
def chunk(self: TensorSpec, chunks: int, dim: int = 0) -> Any:
    """At most ``chunks`` parts of one size along a dimension; the last may be smaller."""
    if not self.sizes:
        raise ShapeError("chunk() needs a dimension")
    if chunks <= 0:
        raise ShapeError(f"chunk() needs at least one part, not {chunks}")
    size = self.sizes[wrap_dim(dim, len(self.sizes))]
    part = ceil_div(size, chunks)
    if type(part) is int and part == 0:
        return infer("aten.split_with_sizes.default", (self, [0] * chunks, dim))
    return infer("aten.split.Tensor", (self, part, dim))


@composite("aten.split.sizes")
def split_sizes(self: TensorSpec, split_size: Sequence[Size], dim: int = 0) -> Any:
    """Parts of these sizes along a dimension."""
    return infer("aten.split_with_sizes.default", (self, split_size, dim))


@composite("aten.swapaxes.default", "aten.swapdims.default")
def swapaxes(self: TensorSpec, axis0: int, axis1: int) -> TensorSpec:
    """Two dimensions exchanged."""
    return infer("aten.transpose.int", (self, axis0, axis1))


@composite("aten.movedim.int", "aten.moveaxis.int", "aten.movedim.intlist", "aten.moveaxis.intlist")
def movedim(self: TensorSpec, source: Any, destination: Any) -> TensorSpec:
    """Dimensions at other places, the rest in order."""
    number = len(self.sizes)
    pairs = [_listed(each, 1) for each in (source, destination)]
    if len(pairs[0]) != len(pairs[1]):
        raise ShapeError("source and destination must be as many")
    there, to = ([wrap_dim(dim, number) for dim in dims] for dims in pairs)
    if len(set(there)) != len(there) or len(set(to)) != len(to):
        raise ShapeError("a dimension appears twice")
    if not number:
        return infer("aten.alias.default", (self,))
    moved = dict(zip(to, there, strict=True))
    others = iter(dim for dim in range(number) if dim not in there)
    return infer(
        "aten.permute.default",
        (self, [moved[d] if d in moved else next(others) for d in range(number)]),
    )


@composite("aten.expand_as.default")
def expand_as(self: TensorSpec, other: TensorSpec) -> TensorSpec:
    """Expanded to the sizes of another tensor."""
    return infer("aten.expand.default", (self, list(other.sizes)))


@composite("aten.view_as.default")
def view_as(self: TensorSpec, other: TensorSpec) -> TensorSpec:
    """A view of the sizes of another tensor."""
    return infer("aten.view.default", (self, list(other.sizes)))


@composite("aten.reshape_as.default")
def reshape_as(self: TensorSpec, other: TensorSpec) -> TensorSpec:
    """Reshaped to the sizes of another tensor."""
    return infer("aten.reshape.default", (self, list(other.sizes)))


# -- the rest --------------------------------------------------------------------------------------


def _normalised(overload: str) -> Any:
    def softmax(self: TensorSpec, dim: int, dtype: torch.dtype | None = None) -> TensorSpec:
        if dtype is not None and dtype is not self.dtype:
            self = infer("aten._to_copy.default", (self,), {"dtype": dtype})
        return infer(overload, (self, dim, False))

    return softmax


composite("aten.softmax.int")(_normalised("aten._softmax.default"))
composite("aten.log_softmax.int")(_normalised("aten._log_softmax.default"))


@composite("aten.layer_norm.default")
def layer_norm(
    input: TensorSpec,
    normalized_shape: Sequence[Size],
    weight: TensorSpec | None = None,
    bias: TensorSpec | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> TensorSpec:
    """Normalised over the last dimensions."""
    return infer("aten.native_layer_norm.default", (input, normalized_shape, weight, bias, eps))[0]


@composite("aten.group_norm.default")
def group_norm(
    input: TensorSpec,
    num_groups: int,
    weight: TensorSpec | None = None,
    bias: TensorSpec | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> TensorSpec:
    """Normalised over groups of channels."""
    if len(input.sizes) < 2:
        raise ShapeError(f"group_norm() needs at least 2 dimensions, got {show(input.sizes)}")
    number, channels = input.sizes[:2]
    check(channels % num_groups == 0, lambda: f"{channels} channels cannot be {num_groups} groups")
    rest = product(input.sizes[2:])
    return infer(
        "aten.native_group_norm.default",
        (input, weight, bias, number, channels, rest, num_groups, eps),
    )[0]


def _register_pooling() -> None:
    for number in (2, 3):
        composite(f"aten.max_pool{number}d.default")(_pooling_over(number))


def _pooling_over(n: int) -> Any:
    def max_pool(self: TensorSpec, *args: Any, **kwargs: Any) -> TensorSpec:
        return infer(f"aten.max_pool{n}d_with_indices.default", (self, *args), kwargs)[0]

    return max_pool


_register_pooling()
