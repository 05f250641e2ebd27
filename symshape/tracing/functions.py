"""Torch functions answered before C++: questions about shapes, and ``reshape``.

C++ would come back to Python for each piece of a shape; here ``x.shape`` is one look.  And C++'s ``reshape`` asks whether sizes
are 0 or 1 on its way to a decision that the strides' structure settles, which would leave guards that no program needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from meta_fns.errors import ShapeError
from meta_fns.view_algebra import infer_sizes, view_strides
from symshape.errors import ProgramError
from symshape.tracing.symints import IntNode
from symshape.tracing.tensors import SymbolicTensor, outward

aten = torch.ops.aten


def _size(tensor: SymbolicTensor, dim: int | None = None) -> Any:
    sizes = tensor._spec.sizes
    if dim is None:
        return torch.Size([outward(size) for size in sizes])
    if not -len(sizes) <= dim < len(sizes):
        raise IndexError(f"dimension {dim} is out of range for a tensor of {len(sizes)} dimension(s)")
    return outward(sizes[dim])


def _stride(tensor: SymbolicTensor, dim: int | None = None) -> Any:
    strides = tensor._spec.strides
    return tuple(outward(stride) for stride in strides) if dim is None else outward(strides[dim])


def _inward(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sizes as a user wrote them (a list, or one by one) as sizes for rules."""
    if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)):
        sizes = tuple(sizes[0])
    return tuple(
        size.node if isinstance(size, torch.SymInt) and isinstance(size.node, IntNode) else size for size in sizes
    )


def _reshape(tensor: SymbolicTensor, *shape: Any) -> torch.Tensor:
    spec = tensor._spec
    try:
        sizes = infer_sizes(spec.sizes, _inward(shape))
        viewable = view_strides(spec.sizes, spec.strides, sizes) is not None
    except ShapeError as error:
        raise ProgramError(f"{error} (at {tensor._tracer.env._origin()})") from error
    outer = [outward(size) for size in sizes]
    if viewable:
        return tensor.view(outer)
    return aten._unsafe_view(tensor.clone(memory_format=torch.contiguous_format), outer)  # type: ignore[no-any-return]


def _flatten(tensor: SymbolicTensor, start_dim: int = 0, end_dim: int = -1) -> torch.Tensor:
    sizes = list(tensor._spec.sizes)
    number = len(sizes)
    if not number:
        return _reshape(tensor, 1)
    start, end = (range(-number, number).index(d) % number for d in (start_dim, end_dim))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if start == end:
        return tensor
    merged: Any = 1
    for size in sizes[start : end + 1]:
        merged = size * merged
    return _reshape(tensor, *sizes[:start], merged, *sizes[end + 1 :])


_handlers: dict[Any, Callable[..., Any]] = {
    torch.Tensor.shape.__get__: lambda t: _size(t),
    torch.Tensor.size: _size,
    torch.Tensor.stride: _stride,
    torch.Tensor.dim: lambda t: len(t._spec.sizes),
    torch.Tensor.ndim.__get__: lambda t: len(t._spec.sizes),
    torch.Tensor.dtype.__get__: lambda t: t._spec.dtype,
    torch.Tensor.device.__get__: lambda t: t._spec.device,
    torch.Tensor.reshape: _reshape,
    torch.reshape: lambda input, shape: _reshape(input, *shape),
    torch.Tensor.flatten: _flatten,
    torch.flatten: lambda input, start_dim=0, end_dim=-1: _flatten(input, start_dim, end_dim),
}


class FunctionMode(TorchFunctionMode):
    """Hands the functions above to Python and everything else to torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if args and type(args[0]) is SymbolicTensor:
            handler = _handlers.get(func)
            if handler is not None:
                return handler(*args, **kwargs) if kwargs else handler(*args)
        return func(*args, **kwargs) if kwargs else func(*args)
