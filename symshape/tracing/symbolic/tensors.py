"""The tensor that user code sees while it is traced: a ``TensorSpec`` and a graph value, no data.

Its sizes live in Python: C++ asks for them through ``__torch_dispatch__`` (the ``sizes`` policy of a wrapper subclass,
checked on torch 2.11 to 2.13), which costs nothing until somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch._ops import OpOverload

from meta_fns import TensorSpec
from meta_fns.core import dense, layout
from symshape.errors import UnsupportedError
from symshape.graph.reshape_copies import Copied
from symshape.graph.steps import Step, Value
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.nodes.texts import wants_value

aten = torch.ops.aten
_ONES = [(1,) * n for n in range(65)]
_make_wrapper: Any = torch.Tensor._make_wrapper_subclass


class Trace(Protocol):
    """What a symbolic tensor, and who handles its calls, needs of the trace that it belongs to: see ``Tracer``."""

    @property
    def env(self) -> ShapeEnv:
        """Symbols, facts and guards."""

    @property
    def steps(self) -> list[Step]:
        """Nodes and assertions so far."""

    @property
    def copies(self) -> list[Copied]:
        """Reshapes that could have been views."""

    @property
    def arguments(self) -> set[Value]:
        """The values of tensor arguments."""

    @property
    def laid_out(self) -> set[Value]:
        """The values whose strides are known exactly."""

    @property
    def looked_at(self) -> set[Value]:
        """The values of which the program read how they lie in memory."""

    @property
    def told_to_require(self) -> set[Value]:
        """The values that require gradients because the program told them to."""

    @property
    def closed(self) -> bool:
        """Whether the trace is over."""

    def dispatch(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The op's outputs, written down."""

    def read_integer(self, op: OpOverload, tensor: SymbolicTensor, *args: int) -> Any:
        """An integer that only the real tensor can tell."""


class SymbolicTensor(torch.Tensor):
    """A tensor without data whose sizes may be symbolic."""

    _spec: TensorSpec
    _value: Value
    _tracer: Trace
    _known: torch.Tensor | None  # the data, where the program itself wrote it down as a constant

    @staticmethod
    def make(spec: TensorSpec, value: Value, tracer: Trace, requires_grad: bool = False) -> SymbolicTensor:
        """A symbolic tensor for a graph value."""
        ones = _ONES[len(spec.sizes)]
        made = _make_wrapper(
            SymbolicTensor,
            ones,
            ones,
            dtype=spec.dtype,
            device=spec.device,
            requires_grad=requires_grad,
            dispatch_sizes_strides_policy="sizes",
        )
        made._spec = spec
        made._value = value
        made._tracer = tracer
        made._known = None
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        answer = METADATA.get(func)
        if answer is not None:
            return answer(*args)
        for arg in torch.utils._pytree.tree_leaves((args, kwargs)):
            if type(arg) is SymbolicTensor and not arg._tracer.closed:
                return arg._tracer.dispatch(func, args, kwargs or {})
        raise UnsupportedError(
            f"{func} was called on a symbolic tensor whose trace is over; a traced function must hand its tensors "
            "out as results, not through side effects"
        )

    def tolist(self) -> Any:
        """Nested lists of symbolic scalars; the sizes must be static."""
        if self.dim() == 0:
            return self.item()
        return [part.tolist() for part in self.unbind(0)]

    def numpy(self, *, force: bool = False) -> Any:
        """Refused: there is no data while tracing."""
        raise UnsupportedError("Tensor.numpy() needs data; a traced function computes with tensors only")

    def __array__(self, dtype: Any = None) -> Any:
        return self.numpy()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        if wants_value():
            _refuse_text()
        return f"SymbolicTensor({self._spec})"

    def __format__(self, spec: str) -> str:
        if spec or wants_value():
            _refuse_text()
        return f"SymbolicTensor({self._spec})"

    def __deepcopy__(self, memo: Any) -> Any:
        return self.clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UnsupportedError("a symbolic tensor cannot be pickled")


def _refuse_text() -> None:
    raise UnsupportedError(
        "the text of a tensor needs its data, which a traced function does not have; print() and logging with "
        "arguments (logger.info('%s', x)) show its sizes instead"
    )


def outward(size: Any) -> Any:
    """A size as torch wants it: an int or a ``torch.SymInt``."""
    return size.symint if type(size) is IntNode else size


def _plain(size: Any) -> int:
    return size.int_() if type(size) is IntNode else size


def _sizes(t: SymbolicTensor) -> Any:
    return tuple([size.symint if type(size) is IntNode else size for size in t._spec.sizes])


def _strides(t: SymbolicTensor) -> Any:
    return tuple([size.symint if type(size) is IntNode else size for size in t._spec.strides])


def _dense(t: SymbolicTensor) -> bool:
    """Whether the elements fill their memory without gaps: some order of the dimensions is contiguous."""
    return t._spec.canonical() or dense.is_dense(t._spec.sizes, t._spec.strides)


def _strides_like(t: SymbolicTensor, memory_format: torch.memory_format) -> bool:
    """Whether the strides suggest a format; unlike contiguity that is no matter of sizes of 1 alone."""
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        wanted = 4 if memory_format is torch.channels_last else 5
        return len(t._spec.sizes) == wanted and layout.is_channels_last_strides(t._spec.sizes, t._spec.strides)
    return bool(t._spec.is_contiguous(memory_format))


METADATA: dict[Any, Callable[..., Any]] = {
    aten.sym_size.default: _sizes,
    aten.sym_size.int: lambda t, d: outward(t._spec.sizes[d]),
    aten.sym_stride.default: _strides,
    aten.sym_stride.int: lambda t, d: outward(t._spec.strides[d]),
    aten.sym_numel.default: lambda t: outward(t._spec.numel()),
    aten.sym_storage_offset.default: lambda t: outward(t._spec.storage_offset),
    aten.dim.default: lambda t: len(t._spec.sizes),
    aten.size.default: lambda t: tuple(_plain(size) for size in t._spec.sizes),
    aten.stride.default: lambda t: tuple(_plain(size) for size in t._spec.strides),
    aten.numel.default: lambda t: _plain(t._spec.numel()),
    aten.storage_offset.default: lambda t: _plain(t._spec.storage_offset),
    aten.is_contiguous.default: lambda t: t._spec.is_contiguous(),
    aten.is_contiguous.memory_format: lambda t, f: t._spec.is_contiguous(f),
    aten.is_strides_like_format.default: lambda t, f: _strides_like(t, f),
    aten.is_non_overlapping_and_dense.default: _dense,
    torch.ops.prim.layout.default: lambda t: t._spec.layout,
}
if hasattr(aten, "sym_is_contiguous"):
    METADATA[aten.sym_is_contiguous.default] = lambda t, f=torch.contiguous_format: t._spec.is_contiguous(f)
