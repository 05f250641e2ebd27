"""Composites that C++ computes with plain sizes, which would fix them; here the same ops on
symbolic sizes.

Source: aten/src/ATen/native (LinearAlgebra.cpp, TensorFactories.cpp, Itertools.cpp, ReduceOps.cpp,
Correlation.cpp, TensorAdvancedIndexing.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.tracing.intercept.torch_functions import factories
from symshape.tracing.symbolic.tensors import SymbolicTensor, outward

_unsafe_view = torch.ops.aten._unsafe_view.default
_torch_combinations, _torch_gradient, _torch_cov = torch.combinations, torch.gradient, torch.cov
_torch_take_along_dim = torch.take_along_dim


def kron(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Compute ``torch.kron``: every element of the one times the other."""
    dims = max(input.dim(), other.dim())
    ones, others = ([1] * (dims - each.dim()) + list(each.shape) for each in (input, other))
    left = _unsafe_view(input, [size for each in ones for size in (each, 1)])
    right = _unsafe_view(other, [size for each in others for size in (1, each)])
    made: torch.Tensor = _unsafe_view(
        left * right, [a * b for a, b in zip(ones, others, strict=True)]
    )
    return made


def vander(x: torch.Tensor, N: Any = None, increasing: bool = False) -> torch.Tensor:
    """Compute ``torch.vander``: the powers of each element, one row for each."""
    if x.dim() != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    columns: Any = x.size(0) if N is None else N
    if columns < 0:
        raise RuntimeError("N must be non-negative.")
    dtype = x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64
    made = torch.empty((x.size(0), columns), dtype=dtype, device=x.device)
    if columns > 0:
        made.select(1, 0).fill_(1)
        if columns > 1:
            powers = made.narrow(1, 1, columns - 1)
            powers.copy_(x.unsqueeze(1))
            powers.copy_(powers.cumprod(1))
    return made if increasing else made.flip(1)


def combinations(input: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    """Compute ``torch.combinations``; pairs are selected by position, and their number follows from
    the size.
    """
    if type(input) is not SymbolicTensor or input.dim() != 1 or r != 2 or input.requires_grad:
        return _torch_combinations(input, r, with_replacement)
    n, offset = input.size(0), 0 if with_replacement else 1
    if input.device.type != "cpu" or type(n) is int:
        return _torch_combinations(input, r, with_replacement)
    rows, columns = factories.make(torch.triu_indices, input._tracer, (n, n, offset), {}).unbind(0)
    return torch.stack([input[rows], input[columns]], 1)


def gradient(input: torch.Tensor, **options: Any) -> Any:
    """Compute ``torch.gradient`` with one spacing for all dimensions."""
    spacing, dim = options.get("spacing", 1), options.get("dim")
    plain = spacing is None or (type(spacing) in (int, float) and spacing != 0)
    if (
        not plain
        or options.get("edge_order", 1) != 1
        or input.dtype not in (torch.float32, torch.float64)
    ):
        return _torch_gradient(input, **options)
    dims: Sequence[Any] = range(input.dim()) if dim is None else [dim] if type(dim) is int else dim
    distinct = {
        each % input.dim()
        for each in dims
        if type(each) is int and -input.dim() <= each < input.dim()
    }
    if len(distinct) != len(dims) or not dims or any(input.size(each) < 2 for each in dims):
        return _torch_gradient(input, **options)
    return tuple(
        _slope(input, each % input.dim(), 1 if spacing is None else spacing) for each in dims
    )


def _slope(tensor: torch.Tensor, dim: int, spacing: float) -> torch.Tensor:
    size: Any = tensor.size(dim)
    first = (tensor.narrow(dim, 1, 1) - tensor.narrow(dim, 0, 1)) / spacing
    last = (tensor.narrow(dim, size - 1, 1) - tensor.narrow(dim, size - 2, 1)) / spacing
    centre = (tensor.narrow(dim, 2, size - 2) - tensor.narrow(dim, 0, size - 2)) / spacing / 2
    return torch.cat([first, centre, last], dim)


def cov(input: torch.Tensor, **options: Any) -> torch.Tensor:
    """Compute ``torch.cov`` without weights: the number of observations is a size, not data."""
    correction = options.get("correction", 1)
    observations: Any = (
        input.size(1) if input.dim() == 2 else input.size(0) if input.dim() == 1 else None
    )
    usual = (
        options.keys() <= {"correction"}
        and type(correction) is int
        and input.dtype is not torch.bool
    )
    if not usual or observations is None or observations <= correction:
        return _torch_cov(input, **options)
    values = input if input.dim() == 2 else input.view(1, -1)
    count = torch.ops.aten.scalar_tensor.default(
        observations, dtype=torch.int64, device=input.device
    )
    centred = values - (values.sum(1) / count).unsqueeze(1)
    return torch.true_divide(centred @ centred.t().conj(), count - correction).squeeze()


def corrcoef(input: torch.Tensor) -> torch.Tensor:
    """Compute ``torch.corrcoef``."""
    found = cov(input)
    if found.dim() == 0:
        return found / found
    deviations = found.diag().sqrt() if not found.is_complex() else torch.real(found.diag()).sqrt()
    found = found / deviations.view(-1, 1)
    found = found / deviations.view(1, -1)
    return (
        found.clip(-1, 1)
        if not found.is_complex()
        else torch.complex(torch.real(found).clip(-1, 1), torch.imag(found).clip(-1, 1))
    )


def take_along_dim(input: torch.Tensor, indices: torch.Tensor, dim: Any = None) -> torch.Tensor:
    """Compute ``torch.take_along_dim``: tensor and positions are broadcast against each other,
    except along ``dim``.
    """
    if dim is None:
        return _torch_take_along_dim(input, indices)
    if (
        type(dim) is not int
        or input.dim() != indices.dim()
        or not -input.dim() <= dim < input.dim()
    ):
        return _torch_take_along_dim(input, indices, dim)
    if indices.dtype is not torch.int64:
        return _torch_take_along_dim(input, indices, dim)
    along = dim % input.dim()
    common = [
        a
        if d == along or (type(b) is int and b == 1) or a is b
        else b
        if type(a) is int and a == 1
        else None
        for d, (a, b) in enumerate(zip(_sizes(input), _sizes(indices), strict=True))
    ]
    if None in common:
        return _torch_take_along_dim(input, indices, dim)
    shape = [outward(each) for each in common]
    where = [*shape[:along], indices.size(along), *shape[along + 1 :]]
    return input.expand(shape).gather(along, indices.expand(where))


def _sizes(tensor: torch.Tensor) -> Sequence[Any]:
    return tensor._spec.sizes if type(tensor) is SymbolicTensor else tuple(tensor.shape)


HANDLERS: dict[Any, Callable[..., Any]] = {
    torch.kron: kron,
    torch.Tensor.kron: kron,
    torch.vander: vander,
    torch.combinations: combinations,
    torch.gradient: gradient,
    torch.cov: cov,
    torch.Tensor.cov: cov,
    torch.take_along_dim: take_along_dim,
    torch.Tensor.take_along_dim: take_along_dim,
    torch.corrcoef: corrcoef,
    torch.Tensor.corrcoef: corrcoef,
}
