"""The few ops that a tracer answers without a node, or whose arguments it changes, before it asks
their rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import torch

from meta_fns.torch_internals import OpOverload
from symshape.tracing.data.constant_folding import Contents, Unknown
from symshape.tracing.lifting import Lifting, outside_modes
from symshape.tracing.symbolic.tensors import SymbolicTensor, Trace, outward

aten = torch.ops.aten
_ASSERTIONS = (aten._assert_scalar.default, aten._assert_tensor_metadata.default)
_CHOICES = tuple(
    getattr(packet, name)
    for packet in (
        getattr(aten, f"_use_{library}_ctc_loss", None) for library in ("cudnn", "miopen")
    )
    if packet is not None
    for name in packet.overloads()
)
"""Ops that ask, by the lengths' data, whether to use a library's CTC kernel: torch's own kernel
takes all lengths.
"""
SPECIAL = frozenset(
    (
        aten.lift_fresh.default,
        aten._to_copy.default,
        aten._local_scalar_dense.default,
        *_ASSERTIONS,
        *_CHOICES,
    )
)
"""The ops that :func:`special` handles, besides all ops of the profiler."""
UNANSWERED = object()
_WHOLE = {
    float: torch.float64,
    complex: torch.complex128,
    torch.SymInt: torch.int64,
    torch.SymFloat: torch.float64,
    torch.SymBool: torch.bool,
}
"""The dtypes of tensors that hold a number exactly, by its type."""


class LiftingTrace(Trace, Protocol):
    """The members of a tracer that special ops need."""

    @property
    def lifting(self) -> Lifting:
        """Return the real tensors and constants of the trace."""

    @property
    def contents(self) -> Contents:
        """Return the contents of tensors that the program made from sizes."""


def special(
    trace: LiftingTrace, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, Sequence[Any]]:
    """Return the answer of a special op, or ``UNANSWERED``; and the arguments to continue with."""
    if op is aten.lift_fresh.default:
        if type(args[0]) is not SymbolicTensor:
            return trace.lifting.constant(args[0], trace), args
    elif op is aten._to_copy.default:
        if isinstance(args[0], (bool, int, float, complex)):  # from vmap: the 2 in y * 2
            with outside_modes():
                number = torch.tensor(args[0], dtype=_WHOLE.get(type(args[0])))
            args = (trace.lifting.constant(number, trace), *args[1:])
        elif type(args[0]) in _WHOLE:
            options = {"dtype": _WHOLE[type(args[0])], "device": torch.device("cpu")}
            args = (trace.dispatch(aten.scalar_tensor.default, (args[0],), options), *args[1:])
    elif op is aten._local_scalar_dense.default:
        if type(args[0]) is SymbolicTensor:
            if args[0]._known is not None:
                return args[0]._known.item(), args
            with suppress(Unknown):
                return outward(trace.contents.item(args[0]._value)), args
    elif op is aten._assert_scalar.default:  # torch's graphs spell torch._check this way
        torch._check(
            args[0] if isinstance(args[0], (bool, torch.SymBool)) else args[0] != 0, lambda: args[1]
        )
        return None, args
    elif op is aten._assert_tensor_metadata.default:
        _check_metadata(*args, **kwargs)
        return None, args
    elif op in _CHOICES:
        return False, args
    else:  # a profiler label: the trace shows it, the graph needs none
        with outside_modes():
            return op(*args, **kwargs), args
    return UNANSWERED, args


def _check_metadata(
    tensor: torch.Tensor,
    size: Any = None,
    stride: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    layout: Any = None,
) -> None:
    """Check the metadata of a tensor, which exported programs do before they cast it.

    Raises:
        RuntimeError: the metadata differ, as in eager.
    """
    for what, wanted in (("dtype", dtype), ("device", device), ("layout", layout)):
        if wanted is not None and wanted != (found := getattr(tensor, what)):
            raise RuntimeError(f"Tensor {what} mismatch! Expected: {wanted} Got: {found}")
    for what, numbers, found in (
        ("sizes", size, tensor.shape),
        ("strides", stride, tensor.stride()),
    ):
        if numbers is not None:
            torch._check(len(numbers) == len(found), lambda what=what: f"Tensor {what} mismatch!")
            for one, other in zip(numbers, found, strict=True):
                torch._check(one == other, lambda what=what: f"Tensor {what} mismatch!")
