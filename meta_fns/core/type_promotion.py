"""Type promotion as in eager: dimensioned tensors before 0-d tensors before Python numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from meta_fns.core.spec import TensorSpec

__all__ = [
    "COMPLEX_DTYPES",
    "int_to_float",
    "is_float",
    "number_dtype",
    "result_type",
    "sum_dtype",
    "to_complex",
    "to_real",
]

# The complex dtype of bfloat16 is complex64 before torch 2.14, bcomplex32 since.
_COMPLEX = {
    dtype: dtype.to_complex()
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}
COMPLEX_DTYPES = frozenset((torch.complex32, *_COMPLEX.values()))
"""Every complex dtype of this torch."""
_REAL = {dtype: dtype.to_real() for dtype in COMPLEX_DTYPES}


def number_dtype(value: Any) -> torch.dtype:
    """Return the dtype of a Python or symbolic number as an operand: bool, int64, default float or
    complex.

    A symbolic number names its kind by ``scalar_type`` (``int``, ``float`` or ``bool``; ``int`` if
    it has none).
    """
    kind = type(value)
    if kind is int:
        return torch.int64
    if kind is float:
        return torch.get_default_dtype()
    if kind is bool or kind is torch.SymBool:
        return torch.bool
    if kind is torch.SymFloat:
        return torch.get_default_dtype()
    if kind is complex:
        return to_complex(torch.get_default_dtype())
    if isinstance(value, complex):
        return to_complex(torch.get_default_dtype())
    kind = float if isinstance(value, float) else getattr(value, "scalar_type", int)
    return (
        torch.bool if kind is bool else torch.get_default_dtype() if kind is float else torch.int64
    )


def to_complex(dtype: torch.dtype) -> torch.dtype:
    """Return the complex dtype of the same precision (complex dtypes pass through)."""
    return _COMPLEX.get(dtype, dtype)


def to_real(dtype: torch.dtype) -> torch.dtype:
    """Return the value dtype of a complex dtype; other dtypes pass through."""
    return _REAL.get(dtype, dtype)


def is_float(dtype: torch.dtype) -> bool:
    """Return whether a dtype is floating or complex."""
    return dtype.is_floating_point or dtype.is_complex


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    if higher is None or lower is None:
        return higher if lower is None else lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return to_complex(higher) if lower.is_complex else higher
    if higher is torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher


def result_type(operands: Iterable[Any]) -> torch.dtype:
    """Return the common dtype of TensorSpecs and numbers.

    Dimensioned tensors, 0-d tensors and numbers promote among themselves; a later category matters
    only by a higher kind.

    Source: torch.result_type (ATen/native/TypeProperties.cpp).
    """
    dimensioned: torch.dtype | None = None
    zero: torch.dtype | None = None
    number: torch.dtype | None = None
    for operand in operands:
        if type(operand) is TensorSpec:
            dtype = operand.dtype
            if operand.sizes:
                if dimensioned is not dtype:
                    dimensioned = (
                        dtype if dimensioned is None else torch.promote_types(dimensioned, dtype)
                    )
            elif zero is not dtype:
                zero = dtype if zero is None else torch.promote_types(zero, dtype)
        else:
            dtype = number_dtype(operand)
            number = dtype if number is None else torch.promote_types(number, dtype)
    found = _combine(dimensioned, _combine(zero, number))
    if found is None:
        raise ValueError("result_type of no operands")
    return found


def int_to_float(dtype: torch.dtype) -> torch.dtype:
    """Return the default float dtype for bool and integer dtypes, else the dtype itself."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()


def sum_dtype(dtype: torch.dtype, wanted: torch.dtype | None = None) -> torch.dtype:
    """Return the dtype of ``sum``, ``prod``, ``cumsum``: the wanted one if given, else int64 for
    bool and integers.
    """
    if wanted is not None:
        return wanted
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.int64
