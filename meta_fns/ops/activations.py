"""Activations that are more than a row of the pointwise table, and the gradients of activations.

Elementwise: operands broadcast, promote and keep their layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from meta_fns.core.broadcasting import broadcast
from meta_fns.core.checks import FLOATS, fit_into, need_dtype, need_same, need_same_sizes
from meta_fns.core.derived_rules import written
from meta_fns.core.dims import wrap_dim
from meta_fns.core.pointwise import PROMOTES, accepted, nary, not_implemented
from meta_fns.core.registry import register, rule
from meta_fns.core.sizes import check, known, same_shape, show
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import iterate, laid_out_like
from meta_fns.core.type_promotion import result_type
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.padding import gradients
from meta_fns.padding import pointwise as padded_pointwise
from meta_fns.padding.slicing import halved

__all__: list[str] = []


_pair: Callable[..., TensorSpec] = nary(2, "same", "hf")

# Ops over `(grad, self, ...)`, whose further arguments do not change metadata.
for _name in [
    "hardsigmoid_backward",
    "hardswish_backward",
    "hardtanh_backward",
    "hardshrink_backward",
    "softshrink_backward",
    "softplus_backward",
]:
    register(f"aten.{_name}.default", _pair, name=PROMOTES, padding=padded_pointwise.pointwise)
register(
    "aten.leaky_relu_backward.default",
    nary(2, "same", "hf", order=(1, 0)),
    name=PROMOTES,
    padding=padded_pointwise.pointwise,
)


@rule("aten.mish_backward.default", padding=padded_pointwise.pointwise)
def mish_backward(grad_output: TensorSpec, self: TensorSpec) -> TensorSpec:
    """The gradient of mish, in the dtype of self."""
    result = _pair(grad_output, self)
    if not torch.can_cast(result.dtype, self.dtype):
        raise DtypeError(f"a result of {result.dtype} does not fit into {self.dtype}")
    return result.with_(dtype=self.dtype)


@rule("aten.elu_backward.default", padding=padded_pointwise.pointwise)
def elu_backward(
    grad_output: TensorSpec,
    alpha: Any,
    scale: Any,
    input_scale: Any,
    is_result: bool,
    self_or_result: TensorSpec,
) -> TensorSpec:
    """The gradient of elu from its input or its result."""
    return _pair(grad_output, self_or_result)


@rule("aten.log_sigmoid_forward.default", padding=padded_pointwise.first_alone)
def log_sigmoid_forward(self: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """log(sigmoid(x)), contiguous, and a buffer for the gradient (empty on CUDA)."""
    need_dtype("self", self, FLOATS)
    if self.device.type == "cpu":
        output = self.fresh()
        return output, output
    output = iterate((self,), self.dtype)
    return output, TensorSpec.contiguous((0,), self.dtype, self.device)


@rule("aten.log_sigmoid_backward.default", padding=gradients.first_alone)
def log_sigmoid_backward(
    grad_output: TensorSpec, self: TensorSpec, buffer: TensorSpec
) -> TensorSpec:
    """The gradient of log_sigmoid, laid out like the gradient."""
    need_dtype("self", self, FLOATS)
    need_same("grad_output", grad_output, "self", self)
    if self.device.type != "cpu":
        return iterate((grad_output, self), grad_output.dtype)
    sizes = broadcast(grad_output.sizes, self.sizes, buffer.sizes)
    if not same_shape(sizes, grad_output.sizes):
        return grad_output.fresh(sizes)
    return laid_out_like(grad_output)


@rule("aten._prelu_kernel.default", padding=padded_pointwise.pointwise)
def prelu_kernel(self: TensorSpec, weight: TensorSpec) -> TensorSpec:
    """Leaky relu with a slope for each channel, the weight viewed so that it broadcasts."""
    need_same("weight", weight, "self", self)
    result = _pair(self, weight)
    return laid_out_like(self) if same_shape(result.sizes, self.sizes) else result


@rule("aten._prelu_kernel_backward.default")
def prelu_kernel_backward(
    grad_output: TensorSpec, self: TensorSpec, weight: TensorSpec
) -> tuple[TensorSpec, TensorSpec]:
    """The gradients of self and of the weight, both before reduction."""
    need_dtype("self", self, FLOATS)
    need_same("weight", weight, "self", self)
    need_same("grad_output", grad_output, "self", self)
    result = iterate((self, weight, grad_output), self.dtype)
    return result, result


@rule("aten.glu.default", padding=halved)
def glu(self: TensorSpec, dim: int = -1) -> TensorSpec:
    """The first half of a dimension times the sigmoid of the second."""
    if not self.sizes:
        raise ShapeError("glu does not apply to 0-d tensors")
    need_dtype("self", self, FLOATS)
    at = wrap_dim(dim, len(self.sizes))
    size = self.sizes[at]
    even = size % 2 == 0
    if even is not True and not known(even):
        check(even, lambda: f"the halved dimension must be even, got {size} in {show(self.sizes)}")
    half = self.view((*self.sizes[:at], size // 2, *self.sizes[at + 1 :]), self.strides)
    return iterate((half, half), self.dtype)


@rule("aten.glu_backward.default", padding=gradients.halved)
def glu_backward(grad_output: TensorSpec, self: TensorSpec, dim: int) -> TensorSpec:
    """The gradient of glu: contiguous, of the sizes of its input."""
    if not self.sizes:
        raise ShapeError("glu does not apply to 0-d tensors")
    need_dtype("self", self, FLOATS)
    at = wrap_dim(dim, len(self.sizes))
    check(
        self.sizes[at] % 2 == 0, lambda: f"the halved dimension must be even in {show(self.sizes)}"
    )
    need_same("grad_output", grad_output, "self", self)
    fit_into(
        "grad_output",
        grad_output.sizes,
        (*self.sizes[:at], self.sizes[at] // 2, *self.sizes[at + 1 :]),
    )
    return self.fresh()


@rule("aten.rrelu_with_noise.default")
def rrelu_with_noise(
    self: TensorSpec,
    noise: TensorSpec,
    lower: Any = 0.125,
    upper: Any = 0.3333333333333333,
    training: bool = False,
    generator: Any = None,
) -> TensorSpec:
    """Leaky relu of a random slope, which is written to ``noise`` in training."""
    need_dtype("self", self, FLOATS)
    if training:
        need_same("noise", noise, "self", self)
    need_same_sizes("noise", noise, "self", self)
    return self.fresh()


@rule("aten.rrelu_with_noise_.default")
def rrelu_with_noise_(
    self: TensorSpec,
    noise: TensorSpec,
    lower: Any = 0.125,
    upper: Any = 0.3333333333333333,
    training: bool = False,
    generator: Any = None,
) -> TensorSpec:
    """The same in place."""
    return written(
        self, rrelu_with_noise(self, noise, lower, upper, training, generator), convert=False
    )


@rule("aten.rrelu_with_noise_backward.default")
def rrelu_with_noise_backward(
    grad_output: TensorSpec,
    self: TensorSpec,
    noise: TensorSpec,
    lower: Any,
    upper: Any,
    training: bool,
    self_is_result: bool,
) -> TensorSpec:
    """The gradient of rrelu."""
    if training and upper - lower > 1e-6:
        common = result_type((grad_output, noise))
        return iterate((grad_output, noise), common, common)
    return _pair(grad_output, self)


@rule("aten.rrelu.default")
def rrelu(
    self: TensorSpec,
    lower: Any = 0.125,
    upper: Any = 0.3333333333333333,
    training: bool = False,
    generator: Any = None,
) -> TensorSpec:
    """Leaky relu of a random slope; contiguous whatever the layout of the input."""
    if self.dtype not in accepted("hf"):
        raise not_implemented(self.dtype)
    return self.fresh()


@rule("aten.threshold_backward.default", padding=padded_pointwise.pointwise)
def threshold_backward(grad_output: TensorSpec, self: TensorSpec, threshold: Any) -> TensorSpec:
    """The gradient where ``self`` is above the threshold."""
    return _threshold_backward(grad_output, self)


_threshold_backward = nary(2, "same", "uihf", order=(1, 0))
