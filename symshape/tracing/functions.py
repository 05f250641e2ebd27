"""Torch functions answered before C++: questions about shapes, and the composites of ``composites.py``.

C++ would come back to Python for each piece of a shape; here ``x.shape`` is one look.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch.overrides import TorchFunctionMode

from symshape.errors import UnsupportedError
from symshape.tracing import composites, resizing
from symshape.tracing.graph import Node
from symshape.tracing.indexing import getitem, setitem
from symshape.tracing.symints import BoolNode, FloatNode, IntNode
from symshape.tracing.tensors import SymbolicTensor, outward

aten = torch.ops.aten
_plain_data = torch.Tensor.data.__get__  # type: ignore[attr-defined]


def _size(tensor: SymbolicTensor, dim: int | None = None) -> Any:
    sizes = tensor._spec.sizes
    if dim is None:
        return torch.Size([outward(size) for size in sizes])
    if not -len(sizes) <= dim < len(sizes):
        raise IndexError(f"dimension {dim} is out of range for a tensor of {len(sizes)} dimension(s)")
    return outward(sizes[dim])


def _stride(tensor: SymbolicTensor, dim: int | None = None) -> Any:
    """Strides as a program reads them.

    Those of a dimension of size 1, and all of those of an empty tensor, are an accident of how a tensor was made, which
    rules do not follow: the program then depends on that size, and reads the stride when it runs.
    """
    spec = tensor._spec
    tensor._tracer.looked_at.add(tensor._value)
    every = range(len(spec.sizes))
    dims = every if dim is None else (every[dim],)
    if tensor._value in tensor._tracer.laid_out:
        found = [spec.strides[d] for d in dims]
    else:
        empty = _is_empty(tensor)
        found = [
            tensor._tracer.read_integer(aten.stride.int, tensor, d) if empty or spec.sizes[d] == 1 else spec.strides[d]
            for d in dims
        ]
    return tuple(map(outward, found)) if dim is None else outward(found[0])


def _is_contiguous(tensor: SymbolicTensor, *args: Any, **kwargs: Any) -> Any:
    tensor._tracer.looked_at.add(tensor._value)
    return torch.Tensor.is_contiguous(tensor, *args, **kwargs)


def _is_empty(tensor: SymbolicTensor) -> bool:
    return any(bool(size == 0) for size in tensor._spec.sizes)


def _storage_offset(tensor: SymbolicTensor) -> Any:
    """Where a tensor begins, as a program reads it: where an empty one does depends on strides as ``_stride`` says."""
    if tensor._value not in tensor._tracer.laid_out and tensor._spec.storage_offset != 0 and _is_empty(tensor):
        return outward(tensor._tracer.read_integer(aten.storage_offset.default, tensor))
    return outward(tensor._spec.storage_offset)


def _getter(attribute: Any) -> Any:
    """What torch hands to a function mode when an attribute of a tensor is read."""
    return attribute.__get__


def _data(tensor: SymbolicTensor) -> Any:
    """``tensor.data``: a detached view, whose writes autograd is not told of when the graph runs either."""
    steps = tensor._tracer.steps
    number = len(steps)
    made = _plain_data(tensor)
    if len(steps) == number + 1 and isinstance(steps[-1], Node) and steps[-1].op is aten.detach.default:
        steps[-1] = attrs.evolve(steps[-1], untracked=True)
    return made


_handlers: dict[Any, Callable[..., Any]] = {
    _getter(torch.Tensor.shape): lambda t: _size(t),
    torch.Tensor.size: _size,
    torch.Tensor.stride: _stride,
    torch.Tensor.dim: lambda t: len(t._spec.sizes),
    _getter(torch.Tensor.ndim): lambda t: len(t._spec.sizes),
    _getter(torch.Tensor.nbytes): lambda t: outward(t._spec.numel() * t._spec.dtype.itemsize),
    _getter(torch.Tensor.dtype): lambda t: t._spec.dtype,
    _getter(torch.Tensor.device): lambda t: t._spec.device,
    torch.Tensor.reshape: lambda t, *sizes, shape=(): composites.reshape(t, *(sizes or (shape,))),
    torch.reshape: lambda input, shape: composites.reshape(input, *shape),  # noqa: A006 - torch's own name
    torch.Tensor.flatten: composites.flatten,
    torch.flatten: composites.flatten,
    torch.nn.functional.linear: composites.linear,
    torch.nn.functional.one_hot: composites.one_hot,
    torch.Tensor.__getitem__: getitem,
    torch.Tensor.__setitem__: setitem,
    _getter(torch.Tensor.data): _data,
    torch.Tensor.is_contiguous: _is_contiguous,
    torch.Tensor.storage_offset: _storage_offset,
    torch.nn.functional.interpolate: resizing.interpolate,
    torch.matmul: composites.matmul,
    torch.Tensor.matmul: composites.matmul,
    torch.Tensor.__matmul__: composites.matmul,
}


def _tolist(tensor: torch.Tensor) -> Any:
    return aten.alias.default(tensor).tolist()  # the mode makes it symbolic: its numbers are read when the graph runs


def _refuse(what: str) -> Callable[..., Any]:
    def refuse(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(
            f"{what} reads a tensor's data or address while the function is traced, and a graph would keep what it "
            "found for ever; compute with the tensor, or read it outside of the function"
        )

    return refuse


_handlers[torch.Tensor.data_ptr] = _refuse("Tensor.data_ptr()")

_readers: dict[Any, Callable[..., Any]] = {
    torch.Tensor.tolist: _tolist,
    torch.Tensor.numpy: _refuse("Tensor.numpy()"),
    torch.Tensor.__array__: _refuse("numpy"),
    torch.Tensor.data_ptr: _refuse("Tensor.data_ptr()"),
}
"""What reads real tensors (parameters, buffers, constants around the function) past every dispatcher."""


def _sym_ite(condition: Any, then: Any, otherwise: Any) -> Any:
    """``torch.sym_ite``, which knows only torch's own nodes."""
    if isinstance(condition, bool):
        return then if condition else otherwise
    node = condition.node if isinstance(condition, torch.SymBool) else None
    if not isinstance(node, BoolNode):
        return torch.sym_ite(condition, then, otherwise)
    chosen = node.sym_ite(_node(node, then), _node(node, otherwise))
    kind = {IntNode: torch.SymInt, BoolNode: torch.SymBool, FloatNode: torch.SymFloat}[type(chosen)]
    return kind(chosen)


def _node(like: BoolNode, value: Any) -> Any:
    if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
        return value.node
    wrap = {bool: like.wrap_bool, int: like.wrap_int, float: like.wrap_float}.get(type(value))
    if wrap is None:
        raise TypeError(f"torch.sym_ite chooses between numbers, not a {type(value).__name__}")
    return wrap(value)


class FunctionMode(TorchFunctionMode):
    """Hands the functions above to Python and everything else to torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if args and type(args[0]) is SymbolicTensor:
            handler = _handlers.get(func)
            if handler is not None:
                return handler(*args, **kwargs) if kwargs else handler(*args)
        elif func in _readers and args and isinstance(args[0], torch.Tensor):
            return _readers[func](*args, **kwargs or {})
        elif func is torch.sym_ite:
            return _sym_ite(*args)
        return func(*args, **kwargs) if kwargs else func(*args)

    def __enter__(self) -> FunctionMode:
        self._attention = torch.nn.functional.scaled_dot_product_attention
        torch.nn.functional.scaled_dot_product_attention = _with_plain_flags(self._attention)
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *error: Any) -> None:
        torch.nn.functional.scaled_dot_product_attention = self._attention
        super().__exit__(*error)


def _with_plain_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with symbolic flags decided first (``is_causal=n > 1``): C++ refuses them before it asks a mode."""

    def plain(arg: Any) -> Any:
        return bool(arg) if type(arg) is torch.SymBool else arg

    return lambda *args, **kwargs: function(*map(plain, args), **{name: plain(arg) for name, arg in kwargs.items()})
