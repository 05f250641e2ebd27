"""Pointwise ops: one generic rule per number of operands, driven by the rows of `pointwise_table`.

Operands are the leading tensors and numbers that take part in broadcasting and promotion; what follows (alpha,
rounding mode,
slopes, ...) does not change metadata and is passed over, except where a row of this module says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from meta_fns.core import dense, promote
from meta_fns.core.broadcasting import broadcast
from meta_fns.core.derived import written
from meta_fns.core.iterator import common_device, iterate
from meta_fns.core.registry import Context, register, rule
from meta_fns.core.sizes import known
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.pointwise_table import BINARY, DTYPES, LIKE, SCALED, TERNARY, UNARY

__all__ = ["accepted", "nary", "unary"]


POINTWISE, PROMOTES = "pointwise", "broadcast and promote"
"""What users read of the rules of one operand, and of several."""


def accepted(letters: str) -> frozenset[torch.dtype]:
    """The dtypes of a row of letters (`pointwise_table.DTYPES`)."""
    return frozenset(dtype for letter in letters for dtype in DTYPES[letter])


def _refuse(dtype: torch.dtype) -> DtypeError:
    return DtypeError(f"not implemented for {dtype}")


def _double(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def _same(dtype: torch.dtype) -> torch.dtype:
    return dtype


# kind -> (dtype computed in, dtype of the output), from the common dtype of the operands
_COMPUTE: dict[str, Callable[[torch.dtype], torch.dtype]] = {
    "same": _same,
    "float": promote.int_to_float,
    "bool": _same,
    "real": _same,
    "angle": promote.int_to_float,
    "double": _double,
}
_OUTPUT: dict[str, Callable[[torch.dtype], torch.dtype]] = {
    "same": _same,
    "float": _same,
    "bool": lambda _: torch.bool,
    "real": promote.to_real,
    "angle": promote.to_real,
    "double": _same,
}


def unary(kind: str, letters: str) -> Callable[..., TensorSpec]:
    """The rule of an op over one tensor."""
    good = accepted(letters)
    compute, output = _COMPUTE[kind], _OUTPUT[kind]
    by_parts = kind in ("real", "angle")

    def fn(self: TensorSpec, *rest: Any, **options: Any) -> TensorSpec:
        dtype = self.dtype
        if dtype not in good:
            raise _refuse(dtype)
        if kind == "same":
            return self.fresh() if self.canonical() else iterate((self,), dtype)
        common = compute(dtype)
        if by_parts and dtype.is_complex:
            strides = dense.like_strides(self.sizes, self.strides, None)
            return TensorSpec(self.sizes, strides, 0, output(common), self.device)
        return iterate((self,), output(common), common)

    return fn


def like(kind: str, letters: str) -> Callable[..., TensorSpec]:
    """The rule of an op over one tensor whose output is laid out as `empty_like`."""
    good = accepted(letters)
    compute = _COMPUTE[kind]

    def fn(self: TensorSpec, *rest: Any, **options: Any) -> TensorSpec:
        dtype = self.dtype
        if dtype not in good:
            raise _refuse(dtype)
        strides = dense.like_strides(self.sizes, self.strides, None)
        return TensorSpec(self.sizes, strides, 0, compute(dtype), self.device)

    return fn


def nary(
    count: int, kind: str, letters: str, *, order: tuple[int, ...] | None = None, numbers: bool = True
) -> Callable[..., TensorSpec]:
    """The rule of an op whose first `count` arguments (TensorSpecs or numbers) are operands.

    `order`: in which order the iterator looks at their strides, if not as they come. `numbers`: whether numbers among
    them
    become 0-d tensors of the iterator, or are passed to the kernel.
    """
    good = accepted(letters)
    compute, output = _COMPUTE[kind], _OUTPUT[kind]

    def fn(*args: Any, **options: Any) -> TensorSpec:
        operands = args[:count]
        tensors = [a for a in operands if type(a) is TensorSpec]
        common = tensors[0].dtype
        only = len(tensors) == len(operands)
        if only:
            for tensor in tensors:
                if tensor.dtype is not common:
                    common = promote.result_type(tensors)
                    break
        else:
            common = promote.result_type(operands)
        if common not in good:
            raise _refuse(common)
        common = compute(common)
        if order is not None:
            tensors = [operands[i] for i in order if type(operands[i]) is TensorSpec]
        return iterate(tensors, output(common), common, numbers=numbers and not only)

    return fn


def _with_alpha(fn: Callable[..., TensorSpec]) -> Callable[..., TensorSpec]:
    """Also refuse an `alpha` of a kind that the common dtype cannot hold."""

    def checked(self: Any, other: Any, alpha: Any = 1) -> TensorSpec:
        if type(alpha) is int:
            return fn(self, other)
        result = fn(self, other)
        dtype = result.dtype
        if isinstance(alpha, bool) and dtype is not torch.bool:
            raise DtypeError("a bool alpha needs bool arguments")
        if isinstance(alpha, (float, torch.SymFloat)) and not promote.is_float(dtype):
            raise DtypeError(f"for {dtype} arguments alpha must not be a float")
        if isinstance(alpha, complex) and not dtype.is_complex:
            raise DtypeError(f"for {dtype} arguments alpha must not be complex")
        return result

    return checked


def _without_bool(fn: Callable[..., TensorSpec]) -> Callable[..., TensorSpec]:
    """Refuse any bool operand (subtraction)."""

    def checked(self: Any, other: Any, *rest: Any, **options: Any) -> TensorSpec:
        for operand in (self, other):
            if (operand.dtype if type(operand) is TensorSpec else promote.number_dtype(operand)) is torch.bool:
                raise DtypeError("subtraction with a bool argument is not supported")
        return fn(self, other, *rest, **options)

    return checked


def _register_tables() -> None:
    for names, kind, letters in UNARY:
        for name in names.split():
            register(f"aten.{name if '.' in name else name + '.default'}", unary(kind, letters), name=POINTWISE)
    for names, kind, letters in SCALED:
        for name in names.split():
            register(f"aten.{name}.default", nary(2, kind, letters, numbers=False), name=PROMOTES)
    for names, kind, letters in LIKE:
        for name in names.split():
            register(f"aten.{name}.default", like(kind, letters), name=POINTWISE)
    for rows, count in ((BINARY, 2), (TERNARY, 3)):
        for names, kind, letters in rows:
            for name in names.split():
                fn = nary(count, kind, letters, order=(1, 0) if name.startswith("rsub.") else None)
                if name.startswith(("sub.", "rsub.", "subtract.")):
                    fn = _without_bool(fn)
                if name.startswith(("add.", "sub.", "rsub.", "subtract.")):
                    fn = _with_alpha(fn)
                register(f"aten.{name if '.' in name else name + '.default'}", fn, name=PROMOTES)


_register_tables()


_division = nary(2, "float", "buihfc")
_floor = nary(2, "same", "uihf")
_trunc = nary(2, "same", "uihf")


@rule("aten.div.Tensor_mode", "aten.div.Scalar_mode", name="rounded division")
def div_mode(self: Any, other: Any, *, rounding_mode: str | None) -> TensorSpec:
    """`self / other`, rounded as told."""
    if rounding_mode is None:
        return _division(self, other)
    if rounding_mode not in ("floor", "trunc"):
        raise ShapeError(f"rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")
    return _floor(self, other) if rounding_mode == "floor" else _trunc(self, other)


_clamp = nary(3, "same", "uihf", numbers=False)


@rule("aten.clamp.default", "aten.clip.default", "aten.clamp.Tensor", "aten.clip.Tensor")
def clamp(self: TensorSpec, min: Any = None, max: Any = None) -> TensorSpec:  # noqa: A002 - names of the schema
    """`self` within bounds, which promote and broadcast with it."""
    if min is None and max is None:
        raise ShapeError("at least one of min and max must be given")
    if type(min) is type(max):
        return _clamp(self, min, max)
    return _clamp_one(self, max if min is None else min) if min is None or max is None else _clamp(self, min, max)


_clamp_one = nary(2, "same", "buihf", numbers=False)


_power = nary(2, "same", "buihfc", numbers=False)


@rule("aten.pow.Tensor_Scalar")
def power(self: TensorSpec, exponent: Any) -> TensorSpec:
    """`self ** exponent`."""
    if type(exponent) is int and exponent < 0 and not promote.is_float(self.dtype):
        raise DtypeError("integers to negative integer powers are not allowed")
    return _power(self, exponent)


@rule("aten.square.default")
def square(self: TensorSpec) -> TensorSpec:
    """`self ** 2`."""
    return _power(self, 2)


_power_of_number = nary(2, "same", "uihfc")
_double_power = nary(2, "double", "buihfcz")
_double_power_number = nary(2, "double", "buihfcz", numbers=False)


@rule("aten.pow.Scalar")
def power_of_number(self: Any, exponent: TensorSpec) -> TensorSpec:
    """A number to the power of a tensor; contiguous whatever the layout of the tensor."""
    return _power_of_number(self, exponent).fresh()


@rule("aten.float_power.Scalar")
def double_power_of_number(self: Any, exponent: TensorSpec) -> TensorSpec:
    """A number to the power of a tensor in double precision; contiguous for 1."""
    result = _double_power(self, exponent)
    return result.fresh() if type(self) in (int, float, bool) and self == 1 else result


register("aten.float_power.Tensor_Tensor", _double_power, name=PROMOTES)
register("aten.float_power.Tensor_Scalar", _double_power_number, name=PROMOTES)


@rule("aten.equal.default", data_dependent=True)
def equal(ctx: Context, self: TensorSpec, other: TensorSpec) -> Any:
    """Whether sizes and values agree: data, unless the sizes provably differ."""
    if len(self.sizes) != len(other.sizes):
        return False
    if any(a is not b and known(a != b) for a, b in zip(self.sizes, other.sizes, strict=True)):
        return False
    return ctx.new_bool()


@rule("aten.native_dropout_backward.default")
def native_dropout_backward(grad_output: TensorSpec, mask: TensorSpec, scale: Any) -> TensorSpec:
    """`grad_output * mask * scale`."""
    common = promote.result_type((grad_output, mask))
    product = iterate((grad_output, mask), common, common)
    return iterate((product,), promote.result_type((product, 1.0)), numbers=True)


@rule("aten.abs_.default")
def abs_(self: TensorSpec) -> TensorSpec:
    """The absolute value in place (real dtypes)."""
    if self.dtype not in _REALS:
        raise _refuse(self.dtype)
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
            raise DtypeError(f"arguments must have one dtype, got {[str(t.dtype) for t in tensors]}")
        return fn(*args)

    return checked


register("aten.heaviside.default", _one_dtype(nary(2, "same", "buihf"), 2), name="broadcast in one dtype")
register("aten.lerp.Scalar", _one_dtype(nary(2, "same", "hfc"), 2), name="broadcast in one dtype")


@rule("aten.lerp.Tensor")
def lerp(self: TensorSpec, end: TensorSpec, weight: TensorSpec) -> TensorSpec:
    """`self + weight * (end - self)`; only a 0-d weight may be of another dtype."""
    if self.dtype is not end.dtype or (weight.sizes and weight.dtype is not self.dtype):
        raise DtypeError(f"arguments must have one dtype, got {self.dtype}, {end.dtype} and {weight.dtype}")
    return _lerp(self, end, weight)


_lerp = nary(3, "same", "hfc")


@rule("aten.ldexp.Tensor")
def ldexp(self: TensorSpec, other: TensorSpec) -> TensorSpec:
    """`self * 2 ** other`."""
    if other.dtype is torch.bool and self.dtype.is_floating_point:
        raise _refuse(other.dtype)
    if self.dtype.is_floating_point and not promote.is_float(other.dtype):
        return iterate((self, other), self.dtype)
    return _product(self, _float(other).fresh())


_log_gamma = unary("float", "uihf")


@rule("aten.mvlgamma.default")
def mvlgamma(self: TensorSpec, p: int) -> TensorSpec:
    """The logarithm of the multivariate gamma function of dimension `p`; contiguous."""
    if p < 1:
        raise ShapeError(f"p must be at least 1, got {p}")
    return _log_gamma(self).fresh()


_product = nary(2, "same", "buihfcz")
_float = unary("float", "buihfc")


@rule("aten.addcdiv.default")
def addcdiv(self: TensorSpec, tensor1: TensorSpec, tensor2: TensorSpec, *, value: Any = 1) -> TensorSpec:
    """`self + value * tensor1 / tensor2`."""
    if not promote.is_float(tensor1.dtype) and not promote.is_float(tensor2.dtype):
        raise DtypeError("integer division with addcdiv is not supported")
    return _addcdiv(self, tensor1, tensor2)


_addcdiv = nary(3, "same", "hfc")


@rule("aten.rrelu.default")
def rrelu(
    self: TensorSpec, lower: Any = 0.125, upper: Any = 0.3333333333333333, training: bool = False, generator: Any = None
) -> TensorSpec:
    """Leaky relu of a random slope; contiguous whatever the layout of the input."""
    if self.dtype not in accepted("hf"):
        raise _refuse(self.dtype)
    return self.fresh()


@rule("aten.isfinite.default")
def isfinite(self: TensorSpec) -> TensorSpec:
    """True where neither infinite nor NaN: laid out like integers, as `(self == self) * (abs(self) != inf)` else."""
    if not promote.is_float(self.dtype):
        return _bool_like(self)
    parts = self
    if self.dtype.is_complex:
        parts = self.view(self.sizes, tuple(2 * stride for stride in self.strides))
    size = iterate((parts,), self.dtype)
    return iterate((iterate((parts, parts), torch.bool), iterate((size,), torch.bool, numbers=True)), torch.bool)


@rule("aten.isinf.default")
def isinf(self: TensorSpec) -> TensorSpec:
    """True where infinite: laid out like integers, as `abs(self) == inf` else."""
    if not promote.is_float(self.dtype):
        return _bool_like(self)
    parts = self
    if self.dtype.is_complex:
        parts = self.view(self.sizes, tuple(2 * stride for stride in self.strides))
    return iterate((iterate((parts,), self.dtype),), torch.bool, numbers=True)


def _bool_like(self: TensorSpec) -> TensorSpec:
    strides = dense.like_strides(self.sizes, self.strides, None)
    return TensorSpec(self.sizes, strides, 0, torch.bool, self.device)


@rule("aten.threshold_backward.default")
def threshold_backward(grad_output: TensorSpec, self: TensorSpec, threshold: Any) -> TensorSpec:
    """The gradient where `self` is above the threshold."""
    return _threshold_backward(grad_output, self)


_threshold_backward = nary(2, "same", "uihf", order=(1, 0))


@rule("aten.where.self")
def where(condition: TensorSpec, self: Any, other: Any) -> TensorSpec:
    """`self` where the condition holds, else `other`; the three broadcast, the last two promote."""
    if condition.dtype is not torch.bool and condition.dtype is not torch.uint8:
        raise DtypeError(f"condition must be bool, got {condition.dtype}")
    same = type(self) is TensorSpec and type(other) is TensorSpec and self.dtype is other.dtype
    common = self.dtype if same else promote.result_type((self, other))
    tensors = [condition]
    for operand in (self, other):
        if type(operand) is TensorSpec:
            if operand.dtype is not common:
                strides = dense.like_strides(operand.sizes, operand.strides, None)
                operand = operand.with_(dtype=common, strides=strides, storage_offset=0)
            tensors.append(operand)
    return iterate(tensors, common)


@rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(self: TensorSpec, mask: TensorSpec, value: Any) -> TensorSpec:
    """`value` where the mask holds, else `self`; the two broadcast. The result is contiguous whatever the layout of
    `self`.
    """
    if mask.dtype is not torch.bool:
        raise DtypeError(f"mask must be bool, got {mask.dtype}")
    if type(value) is TensorSpec:
        if value.sizes:
            raise ShapeError(f"value must be 0-d, got {len(value.sizes)} dimensions")
    elif isinstance(value, complex) and not self.dtype.is_complex:
        raise DtypeError(f"a complex value does not fit into {self.dtype}")
    if self.sizes is mask.sizes:
        return self.fresh()
    return TensorSpec.contiguous(broadcast(self.sizes, mask.sizes), self.dtype, common_device((self, mask)))


@rule("aten.frexp.Tensor")
def frexp(self: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """Mantissa, of the input's dtype, and exponent, int32."""
    if not self.dtype.is_floating_point:
        raise _refuse(self.dtype)
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


@rule("aten.polar.default", "aten.complex.default", name="complex of two parts")
def complex_of(real: TensorSpec, imag: TensorSpec) -> TensorSpec:
    """The complex tensor of two real ones of one float dtype."""
    if real.dtype is not imag.dtype:
        raise DtypeError(f"both must have one dtype, got {real.dtype} and {imag.dtype}")
    if real.dtype not in (torch.float16, torch.float32, torch.float64):
        raise _refuse(real.dtype)
    return iterate((real, imag), promote.to_complex(real.dtype))


@rule("aten.conj_physical.default", "aten.positive.default", name="self or conjugate")
def self_or_conj(self: TensorSpec) -> TensorSpec:
    """The input itself where nothing is to be done (real dtypes for conj_physical)."""
    return iterate((self,), self.dtype) if self.dtype.is_complex else self
