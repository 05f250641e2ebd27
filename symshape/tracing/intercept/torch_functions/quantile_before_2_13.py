"""Quantiles, for which C++ of torch before 2.13 asks for plain sizes and the value of the fraction;
here the same ops.

Source: aten/src/ATen/native/Sorting.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.tracing.intercept.torch_functions.matmul_before_2_13 import SIZES_ARE_SYMBOLS
from symshape.tracing.symbolic.tensors import SymbolicTensor

_TOO_LARGE = 2**24
_ROUNDED: dict[str, Callable[[torch.Tensor], object]] = {
    "lower": torch.Tensor.floor_,
    "higher": torch.Tensor.ceil_,
    "nearest": torch.Tensor.round_,
}


def _by(plain: Callable[..., Any], ignores_nan: bool) -> Callable[..., Any]:
    """Return ``torch.quantile`` or ``torch.nanquantile`` for one fraction given as a number."""

    def quantile(
        input: SymbolicTensor,
        q: Any,
        dim: Any = None,
        keepdim: bool = False,
        *,
        interpolation: str = "linear",
    ) -> Any:
        number, dims = input.dim(), type(dim) is int
        usual = (
            type(q) in (int, float)
            and 0 <= q <= 1
            and input.dtype in (torch.float32, torch.float64)
        )
        known = (
            interpolation in ("linear", "midpoint", *_ROUNDED)
            and (dim is None or dims)
            and number > 0
        )
        if not usual or not known or (dims and not -number <= dim < number) or input.numel() < 1:
            return plain(input, q, dim, keepdim, interpolation=interpolation)
        ordered, shape = _sorted(input, dim, keepdim)
        size: Any = ordered.size(-1)
        if size > _TOO_LARGE:
            return plain(input, q, dim, keepdim, interpolation=interpolation)
        fraction = torch.ops.aten.scalar_tensor.default(q, dtype=input.dtype, device=input.device)
        ordered = ordered.view([*shape, size])
        return _picked(
            ordered, _ranks(ordered, fraction, size, ignores_nan), interpolation
        ).squeeze_(-1)

    return quantile


def _sorted(tensor: torch.Tensor, dim: int | None, keepdim: bool) -> tuple[torch.Tensor, list[Any]]:
    """Return the values sorted along the last dimension, and the sizes of the result."""
    sizes = list(tensor.shape)
    if dim is None:
        return tensor.reshape(-1).sort()[0], [1] * len(sizes) if keepdim else []
    along = dim % len(sizes)
    rest = [*sizes[:along], *([1] if keepdim else []), *sizes[along + 1 :]]
    if along == len(sizes) - 1:
        return tensor.sort()[0], rest
    return tensor.unsqueeze(-1).transpose(along, -1).sort()[0], rest


def _ranks(
    ordered: torch.Tensor, fraction: torch.Tensor, size: Any, ignores_nan: bool
) -> torch.Tensor:
    if ignores_nan:
        ranks: torch.Tensor = fraction * (ordered.isnan().logical_not_().sum(-1, True) - 1)
        return ranks.masked_fill_(ranks < 0, 0)
    ranks, is_nan = torch.broadcast_tensors(fraction * (size - 1), ordered.isnan().any(-1, True))
    return ranks.masked_fill(is_nan, size - 1)  # type: ignore[no-any-return, unused-ignore]


def _picked(ordered: torch.Tensor, ranks: torch.Tensor, interpolation: str) -> torch.Tensor:
    if interpolation in _ROUNDED:
        _ROUNDED[interpolation](ranks)
    below = ranks.to(torch.int64)
    values = ordered.gather(-1, below)
    if interpolation not in _ROUNDED:
        weights = ranks - below if interpolation == "linear" else torch.full_like(ranks, 0.5)
        values.lerp_(ordered.gather(-1, ranks.ceil_().to(torch.int64)), weights)
    return values


_QUANTILE, _NANQUANTILE = _by(torch.quantile, False), _by(torch.nanquantile, True)
HANDLERS: dict[Any, Callable[..., Any]] = (
    {}
    if SIZES_ARE_SYMBOLS
    else {
        **dict.fromkeys((torch.quantile, torch.Tensor.quantile), _QUANTILE),
        **dict.fromkeys((torch.nanquantile, torch.Tensor.nanquantile), _NANQUANTILE),
    }
)
"""The replacements for torch's quantile functions, by function; ``FunctionMode`` calls these."""
