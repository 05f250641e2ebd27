"""Arithmetic of more than a row in the table: division that rounds, bounds, powers, interpolation,
numbers by parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from meta_fns.core import dense, type_promotion
from meta_fns.core.derived_rules import written
from meta_fns.core.pointwise import PROMOTES, accepted, nary, not_implemented, unary
from meta_fns.core.registry import register, rule
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import iterate
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.padding import pointwise as padded_pointwise

__all__: list[str] = []


_division = nary(2, "float", "buihfc")
_floor = nary(2, "same", "uihf")
_trunc = nary(2, "same", "uihf")


@rule(
    "aten.div.Tensor_mode",
    "aten.div.Scalar_mode",
    name="rounded division",
    padding=padded_pointwise.pointwise,
)
def div_mode(self: Any, other: Any, *, rounding_mode: str | None) -> TensorSpec:
    """``self / other``, rounded as told."""
    if rounding_mode is None:
        return _division(self, other)
    if rounding_mode not in ("floor", "trunc"):
        raise ShapeError(f"rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")
    return _floor(self, other) if rounding_mode == "floor" else _trunc(self, other)


_clamp = nary(3, "same", "uihf", numbers=False)


@rule(
    "aten.clamp.default",
    "aten.clip.default",
    "aten.clamp.Tensor",
    "aten.clip.Tensor",
    padding=padded_pointwise.pointwise,
)
def clamp(self: TensorSpec, min: Any = None, max: Any = None) -> TensorSpec:  # noqa: A002
    """``self`` within bounds, which promote and broadcast with it."""
    if min is None and max is None:
        raise ShapeError("at least one of min and max must be given")
    if type(min) is type(max):
        return _clamp(self, min, max)
    return (
        _clamp_one(self, max if min is None else min)
        if min is None or max is None
        else _clamp(self, min, max)
    )


_clamp_one = nary(2, "same", "buihf", numbers=False)


_power = nary(2, "same", "buihfc", numbers=False)


@rule("aten.pow.Tensor_Scalar", padding=padded_pointwise.pointwise)
def power(self: TensorSpec, exponent: Any) -> TensorSpec:
    """``self ** exponent``."""
    if type(exponent) is int and exponent < 0 and not type_promotion.is_float(self.dtype):
        raise DtypeError("integers to negative integer powers are not allowed")
    return _power(self, exponent)


@rule("aten.square.default", padding=padded_pointwise.pointwise)
def square(self: TensorSpec) -> TensorSpec:
    """``self ** 2``."""
    return _power(self, 2)


_power_of_number = nary(2, "same", "uihfc")
_double_power = nary(2, "double", "buihfczw")
_double_power_number = nary(2, "double", "buihfczw", numbers=False)


@rule("aten.pow.Scalar", padding=padded_pointwise.pointwise)
def power_of_number(self: Any, exponent: TensorSpec) -> TensorSpec:
    """A number to the power of a tensor; contiguous whatever the layout of the tensor."""
    return _power_of_number(self, exponent).fresh()


@rule("aten.float_power.Scalar")
def double_power_of_number(self: Any, exponent: TensorSpec) -> TensorSpec:
    """A number to the power of a tensor in double precision; contiguous for 1."""
    result = _double_power(self, exponent)
    return result.fresh() if type(self) in (int, float, bool) and self == 1 else result


register(
    "aten.float_power.Tensor_Tensor",
    _double_power,
    name=PROMOTES,
    padding=padded_pointwise.pointwise,
)
register(
    "aten.float_power.Tensor_Scalar",
    _double_power_number,
    name=PROMOTES,
    padding=padded_pointwise.pointwise,
)


@rule("aten.abs_.default")
def abs_(self: TensorSpec) -> TensorSpec:
    """The absolute value in place (real dtypes)."""
    if self.dtype not in _REALS:
        raise not_implemented(self.dtype)
    return written(self, self, convert=True)


_REALS = accepted("uihf")


@rule("aten.polygamma_.default")
def polygamma_(self: TensorSpec, n: Any) -> TensorSpec:
    """The n-th derivative of digamma, in place."""
    return written(self, polygamma(n, self), convert=False)


def _one_dtype(fn: Callable[..., TensorSpec], count: int) -> Callable[..., TensorSpec]:
    """Refuse tensors of different dtypes instead of promoting them."""

    def checked(*args: Any) -> TensorSpec:
        tensors = [a for a in args[:count] if type(a) is TensorSpec]
        if any(t.dtype is not tensors[0].dtype for t in tensors):
            raise DtypeError(
                f"arguments must have one dtype, got {[str(t.dtype) for t in tensors]}"
            )
        return fn(*args)

    return checked


register(
    "aten.heaviside.default",
    _one_dtype(nary(2, "same", "buihf"), 2),
    name="broadcast in one dtype",
    padding=padded_pointwise.pointwise,
)
register(
    "aten.lerp.Scalar",
    _one_dtype(nary(2, "same", "hfc"), 2),
    name="broadcast in one dtype",
    padding=padded_pointwise.pointwise,
)


@rule("aten.lerp.Tensor", padding=padded_pointwise.pointwise)
def lerp(self: TensorSpec, end: TensorSpec, weight: TensorSpec) -> TensorSpec:
    """``self + weight * (end - self)``; only a 0-d weight may be of another dtype."""
    if self.dtype is not end.dtype or (weight.sizes and weight.dtype is not self.dtype):
        raise DtypeError(
            f"arguments must have one dtype, got {self.dtype}, {end.dtype} and {weight.dtype}"
        )
    return _lerp(self, end, weight)


_lerp = nary(3, "same", "hfc")


@rule("aten.ldexp.Tensor")
def ldexp(self: TensorSpec, other: TensorSpec) -> TensorSpec:
    """``self * 2 ** other``."""
    if other.dtype is torch.bool and self.dtype.is_floating_point:
        raise not_implemented(other.dtype)
    if self.dtype.is_floating_point and not type_promotion.is_float(other.dtype):
        return iterate((self, other), self.dtype)
    return _product(self, _float(other).fresh())


_log_gamma = unary("float", "uihf")


@rule("aten.mvlgamma.default")
def mvlgamma(self: TensorSpec, p: int) -> TensorSpec:
    """The logarithm of the multivariate gamma function of dimension ``p``; contiguous."""
    if p < 1:
        raise ShapeError(f"p must be at least 1, got {p}")
    return _log_gamma(self).fresh()


_product = nary(2, "same", "buihfcz")
_float = unary("float", "buihfc")


@rule("aten.addcdiv.default", padding=padded_pointwise.pointwise)
def addcdiv(
    self: TensorSpec, tensor1: TensorSpec, tensor2: TensorSpec, *, value: Any = 1
) -> TensorSpec:
    """``self + value * tensor1 / tensor2``."""
    if not type_promotion.is_float(tensor1.dtype) and not type_promotion.is_float(tensor2.dtype):
        raise DtypeError("integer division with addcdiv is not supported")
    return _addcdiv(self, tensor1, tensor2)


_addcdiv = nary(3, "same", "hfc")


@rule("aten.frexp.Tensor")
def frexp(self: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """Mantissa, of the input's dtype, and exponent, int32."""
    if not self.dtype.is_floating_point:
        raise not_implemented(self.dtype)
    strides = dense.like_strides(self.sizes, self.strides, None)
    mantissa = TensorSpec(self.sizes, strides, 0, self.dtype, self.device)
    return mantissa, mantissa.with_(dtype=torch.int32)


@rule("aten.polygamma.default")
def polygamma(n: Any, self: TensorSpec) -> TensorSpec:
    """The n-th derivative of digamma."""
    if type(n) is int and n < 0:
        raise ShapeError(f"n must be >= 0, got {n}")
    return _polygamma(self)


_polygamma = unary("float", "buihf")


@rule(
    "aten.polar.default",
    "aten.complex.default",
    name="complex of two parts",
    padding=padded_pointwise.pointwise,
)
def complex_of(real: TensorSpec, imag: TensorSpec) -> TensorSpec:
    """The complex tensor of two real ones of one float dtype."""
    if real.dtype is not imag.dtype:
        raise DtypeError(f"both must have one dtype, got {real.dtype} and {imag.dtype}")
    if real.dtype not in (torch.float16, torch.float32, torch.float64):
        raise not_implemented(real.dtype)
    return iterate((real, imag), type_promotion.to_complex(real.dtype))


@rule("aten.conj_physical.default", "aten.positive.default", name="self or conjugate")
def self_or_conj(self: TensorSpec) -> TensorSpec:
    """The input itself where nothing is to be done (real dtypes for conj_physical)."""
    return iterate((self,), self.dtype) if self.dtype.is_complex else self
