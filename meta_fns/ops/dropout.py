"""Dropout with its mask, which only CUDA (or a fused path) calls, and its gradient."""

from __future__ import annotations

from typing import Any

import torch

from meta_fns.core import type_promotion
from meta_fns.core.checks import need_dtype, need_sizes
from meta_fns.core.registry import rule
from meta_fns.core.spec import TensorSpec, in_suggested_format
from meta_fns.core.tensor_iterator import iterate, laid_out_like
from meta_fns.errors import ShapeError, UnsupportedOp
from meta_fns.padding import random_numbers
from meta_fns.padding.pointwise import pointwise

__all__: list[str] = []


@rule("aten.native_dropout_backward.default", padding=pointwise)
def native_dropout_backward(grad_output: TensorSpec, mask: TensorSpec, scale: Any) -> TensorSpec:
    """``grad_output * mask * scale``."""
    if grad_output.device.type != "cpu":  # one kernel: ATen/native/cuda/Dropout.cu
        need_dtype("mask", mask, (torch.bool,))
        need_sizes("mask", mask, grad_output.sizes)
        return in_suggested_format(grad_output)
    common = type_promotion.result_type((grad_output, mask))
    product = iterate((grad_output, mask), common, common)
    return iterate((product,), type_promotion.result_type((product, 1.0)), numbers=True)


@rule("aten.native_dropout.default", padding=random_numbers.dropped)
def native_dropout(
    input: TensorSpec, p: float, train: bool | None
) -> tuple[TensorSpec, TensorSpec]:
    """The input with elements dropped, and a mask of those that are left."""
    if not 0 <= p <= 1:
        raise ShapeError(f"p must be in [0, 1], got {p}")
    return laid_out_like(input), laid_out_like(input, torch.bool)


@rule("aten._fused_dropout.default")
def fused_dropout(
    self: TensorSpec, p: float, generator: object = None
) -> tuple[TensorSpec, TensorSpec]:
    """The input with elements dropped, and a byte mask of those that are left."""
    return laid_out_like(self), laid_out_like(self, torch.uint8)


@rule("aten.dropout.default")
def dropout(input: TensorSpec, p: float, train: bool) -> TensorSpec:
    """The input with elements dropped, in training; an empty input, or one of which nothing is
    dropped, is returned.
    """
    if not 0 <= p <= 1:
        raise ShapeError(f"p must be in [0, 1], got {p}")
    if not train or p == 0:
        raise UnsupportedOp("dropout that returns its input")
    return iterate((input, laid_out_like(input)), input.dtype)
