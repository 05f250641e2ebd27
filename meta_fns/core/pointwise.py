"""The rules of pointwise ops, by the number of operands, their type promotion and the dtypes that
eager accepts.

Operands are the leading tensors and numbers that take part in broadcasting and promotion; later
arguments (alpha, rounding mode, slopes, ...) do not change metadata and are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from meta_fns.core import dense, type_promotion
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import iterate
from meta_fns.errors import DtypeError

__all__ = [
    "DTYPES",
    "POINTWISE",
    "PROMOTES",
    "accepted",
    "like",
    "nary",
    "not_implemented",
    "unary",
]


_CPU = torch.device("cpu")
DTYPES: dict[str, tuple[torch.dtype, ...]] = {
    "b": (torch.bool,),
    "u": (torch.uint8,),
    "i": (torch.int8, torch.int16, torch.int32, torch.int64),
    "h": (torch.float16, torch.bfloat16),
    "f": (torch.float32, torch.float64),
    "c": (torch.complex64, torch.complex128),
    "z": (torch.complex32,),
    "w": tuple(
        type_promotion.COMPLEX_DTYPES - {torch.complex32, torch.complex64, torch.complex128}
    ),  # bcomplex32, of torch 2.14
}

POINTWISE, PROMOTES = "pointwise", "broadcast and promote"
"""The names, shown to users, of the rules for one operand, and for several."""


def accepted(letters: str) -> frozenset[torch.dtype]:
    """Return the dtypes of a string of letters (``DTYPES``)."""
    return frozenset(dtype for letter in letters for dtype in DTYPES[letter])


def not_implemented(dtype: torch.dtype) -> DtypeError:
    """Return the error for a dtype that a kernel does not implement."""
    return DtypeError(f"not implemented for {dtype}")


def _double(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def _same(dtype: torch.dtype) -> torch.dtype:
    return dtype


# kind -> (dtype computed in, dtype of the output), from the common dtype of the operands
_COMPUTE: dict[str, Callable[[torch.dtype], torch.dtype]] = {
    "same": _same,
    "float": type_promotion.int_to_float,
    "bool": _same,
    "real": _same,
    "angle": type_promotion.int_to_float,
    "double": _double,
}
_OUTPUT: dict[str, Callable[[torch.dtype], torch.dtype]] = {
    "same": _same,
    "float": _same,
    "bool": lambda _: torch.bool,
    "real": type_promotion.to_real,
    "angle": type_promotion.to_real,
    "double": _same,
}


def unary(kind: str, letters: str) -> Callable[..., TensorSpec]:
    """Return the rule of an op over one tensor."""
    good = accepted(letters)
    compute, output = _COMPUTE[kind], _OUTPUT[kind]

    def fn(self: TensorSpec, *rest: Any, **options: Any) -> TensorSpec:
        dtype = self.dtype
        if dtype not in good:
            raise not_implemented(dtype)
        if kind == "same":
            return self.fresh() if self.canonical() else iterate((self,), dtype)
        common = compute(dtype)
        if kind == "angle" and dtype.is_complex:
            # eager copies the real part of a complex result
            return self.fresh(None, output(common))
        if kind == "real" and dtype.is_complex:
            strides = dense.like_strides(self.sizes, self.strides, None)
            return TensorSpec(self.sizes, strides, 0, output(common), self.device)
        return iterate((self,), output(common), common)

    return fn


def like(kind: str, letters: str) -> Callable[..., TensorSpec]:
    """Return the rule of an op over one tensor whose output has the layout of ``empty_like``."""
    good = accepted(letters)
    compute = _COMPUTE[kind]

    def fn(self: TensorSpec, *rest: Any, **options: Any) -> TensorSpec:
        dtype = self.dtype
        if dtype not in good:
            raise not_implemented(dtype)
        strides = dense.like_strides(self.sizes, self.strides, None)
        return TensorSpec(self.sizes, strides, 0, compute(dtype), self.device)

    return fn


def nary(
    count: int,
    kind: str,
    letters: str,
    *,
    order: tuple[int, ...] | None = None,
    numbers: bool = True,
) -> Callable[..., TensorSpec]:
    """Return the rule of an op whose first ``count`` arguments (TensorSpecs or numbers) are
    operands.

    ``order``: the order in which the iterator considers their strides, if not their own.
    ``numbers``: whether numbers among them become 0-d tensors of the iterator, or are passed to the
    kernel.
    """
    good = accepted(letters)
    compute, output = _COMPUTE[kind], _OUTPUT[kind]

    def fn(*args: Any, **options: Any) -> TensorSpec:
        operands = args[:count]
        tensors = [a for a in operands if type(a) is TensorSpec]
        common = tensors[0].dtype if tensors else torch.bool
        only = len(tensors) == len(operands)
        if only:
            for tensor in tensors:
                if tensor.dtype is not common:
                    common = type_promotion.result_type(tensors)
                    break
        else:
            common = type_promotion.result_type(operands)
        if common not in good:
            raise not_implemented(common)
        common = compute(common)
        if order is not None:
            tensors = [operands[i] for i in order if type(operands[i]) is TensorSpec]
        if not tensors:  # Python numbers alone: a 0-d tensor on the CPU
            return TensorSpec.contiguous((), output(common), _CPU)
        return iterate(tensors, output(common), common, numbers=numbers and not only)

    return fn
