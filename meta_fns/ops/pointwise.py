"""Pointwise ops that are a row of the table (``pointwise_table``), registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from meta_fns.core import type_promotion
from meta_fns.core.pointwise import POINTWISE, PROMOTES, like, nary, unary
from meta_fns.core.registry import register
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.pointwise_table import BINARY, LIKE, SCALED, TERNARY, UNARY
from meta_fns.padding.pointwise import pointwise

__all__: list[str] = []


def _with_alpha(fn: Callable[..., TensorSpec]) -> Callable[..., TensorSpec]:
    """Also refuse an ``alpha`` of a kind that the common dtype cannot hold."""

    def checked(self: Any, other: Any, alpha: Any = 1) -> TensorSpec:
        if type(alpha) is int:
            return fn(self, other)
        result = fn(self, other)
        dtype = result.dtype
        if isinstance(alpha, bool) and dtype is not torch.bool:
            raise DtypeError("a bool alpha needs bool arguments")
        if isinstance(alpha, (float, torch.SymFloat)) and not type_promotion.is_float(dtype):
            raise DtypeError(f"for {dtype} arguments alpha must not be a float")
        if isinstance(alpha, complex) and not dtype.is_complex:
            raise DtypeError(f"for {dtype} arguments alpha must not be complex")
        return result

    return checked


def _without_bool(fn: Callable[..., TensorSpec]) -> Callable[..., TensorSpec]:
    """Refuse any bool operand (subtraction)."""

    def checked(self: Any, other: Any, *rest: Any, **options: Any) -> TensorSpec:
        for operand in (self, other):
            if (
                operand.dtype
                if type(operand) is TensorSpec
                else type_promotion.number_dtype(operand)
            ) is torch.bool:
                raise DtypeError("subtraction with a bool argument is not supported")
        return fn(self, other, *rest, **options)

    return checked


def _gelu(self: TensorSpec, *, approximate: str = "none") -> TensorSpec:
    """Refuse an approximation that does not exist."""
    if approximate not in ("none", "tanh"):
        raise ShapeError(f"approximate must be 'none' or 'tanh', got {approximate!r}")
    return _FLOATS(self)


def _softshrink(self: TensorSpec, lambd: Any = 0.5) -> TensorSpec:
    """Refuse a ``lambd`` that is negative, or too large for the dtype."""
    result = _FLOATS(self)
    if not 0 <= lambd <= torch.finfo(result.dtype).max:
        raise ShapeError(f"lambd must be at least 0 and fit into {result.dtype}, got {lambd}")
    return result


_FLOATS = unary("same", "hf")


def _register_tables() -> None:
    for name, fn in (("gelu", _gelu), ("softshrink", _softshrink)):
        register(f"aten.{name}.default", fn, name=POINTWISE, padding=pointwise)
    for names, kind, letters in UNARY:
        for name in names.split():
            register(
                f"aten.{name if '.' in name else name + '.default'}",
                unary(kind, letters),
                name=POINTWISE,
                padding=pointwise,
            )
    for names, kind, letters in SCALED:
        for name in names.split():
            register(
                f"aten.{name}.default",
                nary(2, kind, letters, numbers=False),
                name=PROMOTES,
                padding=pointwise,
            )
    for names, kind, letters in LIKE:
        for name in names.split():
            register(f"aten.{name}.default", like(kind, letters), name=POINTWISE, padding=pointwise)
    for rows, count in ((BINARY, 2), (TERNARY, 3)):
        for names, kind, letters in rows:
            for name in names.split():
                fn = nary(count, kind, letters, order=(1, 0) if name.startswith("rsub.") else None)
                if name.startswith(("sub.", "rsub.", "subtract.")):
                    fn = _without_bool(fn)
                if name.startswith(("add.", "sub.", "rsub.", "subtract.")):
                    fn = _with_alpha(fn)
                register(
                    f"aten.{name if '.' in name else name + '.default'}",
                    fn,
                    name=PROMOTES,
                    padding=pointwise,
                )


_register_tables()
