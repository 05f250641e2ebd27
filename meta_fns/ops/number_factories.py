"""Tensors made of numbers in order: arange, eye, linspace, logspace, triangles of indices; and
triangles of tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, ceil_div, check, known, show, sym_max, sym_min
from meta_fns.core.spec import TensorSpec
from meta_fns.core.type_promotion import number_dtype
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.factories import Device, fresh, need_strided, target_device
from meta_fns.padding import factories as padded_factories
from meta_fns.padding import views as padded_views
from meta_fns.padding.rearranging import embedded_diagonal
from meta_fns.padding.rearranging import eye as padded_eye

__all__: list[str] = []


@rule("aten.eye.default", padding=padded_eye)
def eye(
    n: Size,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """The identity matrix."""
    return eye_m(n, n, dtype=dtype, layout=layout, device=device)


@rule("aten.eye.m", name="eye", padding=padded_eye)
def eye_m(
    n: Size,
    m: Size,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """Ones on the diagonal of an ``(n, m)`` matrix of zeros."""
    for name, size in (("n", n), ("m", m)):
        check(size >= 0, f"{name} must not be negative, got {size}")
    return fresh((n, m), dtype, device, layout)


@rule(
    *("aten.linspace.default", "aten.linspace.Scalar_Tensor", "aten.linspace.Tensor_Scalar"),
    "aten.linspace.Tensor_Tensor",
    padding=padded_factories.evenly,
)
def linspace(
    start: Any,
    end: Any,
    steps: Size,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """``steps`` numbers from ``start`` to ``end``, which may be 0-d tensors."""
    check(steps >= 0, lambda: f"steps must not be negative, got {steps}")
    for name, bound in (("start", start), ("end", end)):
        if isinstance(bound, TensorSpec) and bound.sizes:
            raise ShapeError(f"{name} must be 0-d, got {show(bound.sizes)}")
    if dtype is None:
        dtype = torch.get_default_dtype()
        found = [b.dtype if isinstance(b, TensorSpec) else number_dtype(b) for b in (start, end)]
        if any(d.is_complex for d in found):
            dtype = torch.complex128 if dtype is torch.float64 else torch.complex64
    return fresh((steps,), dtype, device, layout)


@rule(
    "aten.logspace.default",
    "aten.logspace.Scalar_Tensor",
    "aten.logspace.Tensor_Scalar",
    "aten.logspace.Tensor_Tensor",
)
def logspace(
    start: Any,
    end: Any,
    steps: Size,
    base: Any = 10.0,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """``steps`` powers of ``base``, the exponents from ``start`` to ``end``."""
    return linspace(start, end, steps, dtype=dtype, layout=layout, device=device)


@rule("aten.fft_fftfreq.default")
def fft_fftfreq(
    n: Size,
    d: float = 1.0,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """The frequencies of a Fourier transform of ``n`` samples: ``(n,)``."""
    check(n >= 0, lambda: f"n must not be negative, got {n}")
    return _frequencies(n, dtype, device, layout)


@rule("aten.fft_rfftfreq.default")
def fft_rfftfreq(
    n: Size,
    d: float = 1.0,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """The frequencies that are not negative: ``(n // 2 + 1,)``."""
    check(n >= 0, lambda: f"n must not be negative, got {n}")
    return _frequencies(n // 2 + 1, dtype, device, layout)


def _frequencies(
    count: Size, dtype: torch.dtype | None, device: Device, layout: torch.layout | None
) -> TensorSpec:
    dtype = torch.get_default_dtype() if dtype is None else dtype
    # complex ones pass the check of torch's, but there is no kernel
    if not dtype.is_floating_point:
        raise DtypeError(f"frequencies need a floating-point dtype, got {dtype}")
    return fresh((count,), dtype, device, layout)


def _triangle(row: Size, col: Size, offset: Size, lower: bool) -> Size:
    """Return the number of elements of a ``(row, col)`` matrix on or below (above) a diagonal."""
    if not lower:
        return row * col - _triangle(row, col, offset - 1, True)
    return _growing_rows(row + offset, col) - _growing_rows(offset, col)


def _growing_rows(row: Size, col: Size) -> Size:
    """Return the number of elements in ``row`` (0 if negative) rows of 1, 2, 3 … elements, at most
    ``col`` each.
    """
    row = sym_max(row, 0)
    grown = sym_min(row, col)
    return grown * (grown + 1) // 2 + (row - grown) * col


@rule("aten.tril_indices.default")
def tril_indices(
    row: Size,
    col: Size,
    offset: Size = 0,
    *,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """Rows and columns of the lower triangle of a matrix: ``(2, count)``."""
    return _indices(row, col, offset, True, dtype, layout, device)


@rule("aten.triu_indices.default")
def triu_indices(
    row: Size,
    col: Size,
    offset: Size = 0,
    *,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """Rows and columns of the upper triangle of a matrix: ``(2, count)``."""
    return _indices(row, col, offset, False, dtype, layout, device)


def _indices(
    row: Size,
    col: Size,
    offset: Size,
    lower: bool,
    dtype: torch.dtype | None,
    layout_: Any,
    device: Any,
) -> TensorSpec:
    if row < 0 or col < 0:
        raise ShapeError(f"row and col must not be negative, got {row} and {col}")
    dtype = dtype or torch.int64
    if dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise DtypeError(f"not implemented for {dtype}")
    return fresh((2, _triangle(row, col, offset, lower)), dtype, device, layout_)


@rule("aten.tril.default", "aten.triu.default", name="triangle", padding=padded_views.triangle)
def tril(self: TensorSpec, diagonal: Size = 0) -> TensorSpec:
    """The lower (upper) triangle of matrices, zeros elsewhere; contiguous."""
    if len(self.sizes) < 2:
        raise ShapeError(f"needs at least 2 dimensions, got {show(self.sizes)}")
    return self.fresh()


@rule("aten.empty_permuted.default")
def empty_permuted(
    size: Sequence[Size],
    physical_layout: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """Return a new tensor whose dimensions are stored in the order given, outermost first."""
    if len(physical_layout) != len(size) or sorted(physical_layout) != list(range(len(size))):
        raise ShapeError(
            f"physical_layout {list(physical_layout)} is no order of {len(size)} dimensions"
        )
    made = fresh([size[i] for i in physical_layout], dtype, device, layout)
    strides: list[Size] = [0] * len(size)
    for i, stride in zip(physical_layout, made.strides, strict=True):
        strides[i] = stride
    return made.view(tuple(size), tuple(strides))


@rule("aten._efficientzerotensor.default")
def efficientzerotensor(
    size: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """Zeros without storage."""
    return fresh(size, dtype, device, layout)


@rule("aten.block_diag.default")
def block_diag(tensors: Sequence[TensorSpec]) -> TensorSpec:
    """Matrices (vectors and numbers as one row) along a diagonal, zeros elsewhere."""
    if not tensors:
        raise ShapeError("block_diag needs at least one tensor")
    rows: Size = 0
    columns: Size = 0
    dtype = tensors[0].dtype
    for tensor in tensors:
        if len(tensor.sizes) > 2:
            raise ShapeError(f"block_diag takes at most 2 dimensions, got {show(tensor.sizes)}")
        if tensor.device != tensors[0].device:
            raise DtypeError("all tensors must be on one device")
        rows = rows + (tensor.sizes[0] if len(tensor.sizes) == 2 else 1)
        columns = columns + (tensor.sizes[-1] if tensor.sizes else 1)
        dtype = torch.promote_types(dtype, tensor.dtype)
    return TensorSpec.contiguous((rows, columns), dtype, tensors[0].device)


@rule("aten.diag_embed.default", padding=embedded_diagonal)
def diag_embed(self: TensorSpec, offset: int = 0, dim1: int = -2, dim2: int = -1) -> TensorSpec:
    """The last dimension as a diagonal of two new ones."""
    n = len(self.sizes) + 1
    a, b = wrap_dim(dim1, n), wrap_dim(dim2, n)
    if a == b:
        raise ShapeError(f"diag_embed needs two dimensions, got {dim1} and {dim2}")
    if not self.sizes:
        raise ShapeError("diag_embed does not apply to 0-d tensors")
    size = self.sizes[-1] + abs(offset)
    sizes = list(self.sizes[:-1])
    for at in sorted((a, b)):
        sizes.insert(at, size)
    return self.fresh(tuple(sizes))


@rule("aten.arange.default", padding=padded_factories.range_of)
def arange(
    end: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """``0 .. end``, exclusive."""
    return arange_start_step(0, end, 1, dtype=dtype, layout=layout, device=device)


@rule("aten.arange.start", name="arange", padding=padded_factories.range_of)
def arange_start(
    start: Any,
    end: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """``start .. end``, exclusive."""
    return arange_start_step(start, end, 1, dtype=dtype, layout=layout, device=device)


@rule("aten.arange.start_step", name="arange", padding=padded_factories.range_of)
def arange_start_step(
    start: Any,
    end: Any,
    step: Any = 1,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Device = None,
    pin_memory: bool | None = None,
) -> TensorSpec:
    """``start .. end``, exclusive, by ``step``: int64 if all three are ints, else the default
    dtype.
    """
    need_strided(layout)
    numbers = (start, end, step)
    if dtype is None:
        whole = all(type(n) is int or number_dtype(n) in (torch.int64, torch.bool) for n in numbers)
        dtype = torch.int64 if whole else torch.get_default_dtype()
    if dtype.is_complex or dtype is torch.bool:
        raise DtypeError(f"arange is not implemented for {dtype}")
    size = _arange_size(start, end, step, dtype)
    return TensorSpec((size,), (1,), 0, dtype, target_device(device), torch.strided, True)


def _arange_size(start: Any, end: Any, step: Any, dtype: torch.dtype) -> Size:
    floats = any(
        isinstance(n, float) or number_dtype(n).is_floating_point for n in (start, end, step)
    )
    truncates = dtype is torch.int64 and (_TRUNCATES or not floats)
    if all(isinstance(n, (int, float)) for n in (start, end, step)):
        return _arange_static(start, end, step, truncates=truncates)
    return (
        _arange_of_floats(start, end, step, truncates=truncates)
        if floats
        else _arange_of_integers(start, end, step)
    )


def _arange_of_integers(start: Any, end: Any, step: Any) -> Size:
    if known(step > 0) or (not known(step < 0) and step > 0):
        span = end if type(start) is int and start == 0 else end - start
    else:
        check(step < 0, "arange: step must not be 0")
        span, step = start - end, -step
    if not known(span >= 0):
        check(
            span >= 0,
            lambda: f"arange: bounds {start}, {end} are inconsistent with the sign of the step",
        )
    return span if type(step) is int and step == 1 else ceil_div(span, step)


def _arange_of_floats(start: Any, end: Any, step: Any, *, truncates: bool) -> Size:
    """``ceil((end - start) / step)``, where eager's floats are exact on the way; else for the sizes
    of this call.
    """
    fractions = [_fraction(n) for n in (start, end, step)]
    (first, under_first), (last, under_last), (by, under_by) = fractions
    if truncates and None not in (first, last, by) and under_first == under_last == under_by == 1:
        return _arange_of_integers(first, last, by)
    if truncates or type(by) is not int or not 0 < abs(by) < _FEW or None in (first, last):
        if not truncates and isinstance(step, (int, float)) and step:
            return _ceil_of_quotient(start, end, float(step))
        start, end, step = (
            n if isinstance(n, (int, float)) else float(n.guard_float()) for n in (start, end, step)
        )
        return _arange_static(start, end, step, truncates=truncates)
    span = last * under_first - first * under_last
    span, by = (span, by) if by > 0 else (-span, -by)
    if not known(span >= 0):
        check(
            span >= 0,
            lambda: f"arange: bounds {start}, {end} are inconsistent with the sign of the step",
        )
    return ceil_div(span * under_by, under_first * under_last * by)


def _ceil_of_quotient(start: Any, end: Any, step: float) -> Size:
    """``ceil((end - start) / step)`` in double precision, as eager computes it; a bound is
    symbolic.

    A symbolic bound knows how to compute and to round.  What cannot be rounded for all sizes is
    fixed.
    """
    like = start if isinstance(end, (int, float)) else end
    (first, under_first), (last, under_last) = _fraction(start), _fraction(end)
    scaled = step * (under_first * under_last)
    # a power of two in a quotient changes no rounding, unless a float overflows
    if None not in (first, last) and math.isfinite(scaled):
        span = last * under_first - first * under_last
        span, step = span.sym_float(), scaled
    else:
        one, other = (
            like.wrap_float(float(n)) if isinstance(n, (int, float)) else n.sym_float()
            for n in (start, end)
        )
        span = other if isinstance(start, (int, float)) and start == 0 else other.sub(one)
    span, by = (span, step) if step > 0 else (span.neg(), -step)
    whole = span.floor()
    fits = whole >= 0 if whole.maybe_as_int() is None else whole.maybe_as_int() >= 0
    check(fits, lambda: f"arange: bounds {start}, {end} are inconsistent with the sign of the step")
    found = (span if by == 1 else span.truediv(like.wrap_float(by))).ceil()
    return found if found.maybe_as_int() is None else found.maybe_as_int()


_FEW = 2**10
# Before 2.14, torch truncates the bounds and the step of an int64 range to integers before it
# counts the elements.
_TRUNCATES: bool = torch.arange(0, 0.5, dtype=torch.int64, device="cpu").numel() == 0


def _fraction(number: Any) -> tuple[Any, int]:
    """A number as a numerator over a power of two; ``(None, 1)`` where it is none, or of too many
    digits.
    """
    if isinstance(number, float):
        top, bottom = number.as_integer_ratio() if math.isfinite(number) else (None, 1)
    elif isinstance(number, int) or number_dtype(number) is torch.int64:
        return number, 1
    else:
        top, bottom = number.ratio() or (None, 1)
    return (top, bottom) if bottom < _FEW and bottom & (bottom - 1) == 0 else (None, 1)


def _arange_static(start: float, end: float, step: float, *, truncates: bool) -> int:
    if step == 0 or (truncates and int(step) == 0):
        raise ShapeError("arange: step must not be 0")
    if not all(math.isfinite(n) for n in (start, end)):
        raise ShapeError(f"arange: unsupported range {start} to {end}")
    if (end - start) * (1 if step > 0 else -1) < 0:
        raise ShapeError(
            f"arange: bounds {start}, {end} are inconsistent with the sign of step {step}"
        )
    if truncates:
        return -((int(start) - int(end)) // int(step))
    return math.ceil((float(end) - float(start)) / float(step))
