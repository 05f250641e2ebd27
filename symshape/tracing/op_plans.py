"""The plan of an op: the properties that the tracer needs, looked up once for each overload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import attrs
import torch

import meta_fns
from meta_fns.core import registry
from meta_fns.torch_internals import OpOverload
from symshape.torch_internals import dispatch
from symshape.tracing.data.constant_folding import Unknown
from symshape.tracing.intercept.torch_functions import decompositions
from symshape.tracing.symbolic.tensors import SymbolicTensor, outward
from symshape.tracing.trace_state import TraceState

# -- The few ops that a tracer answers without a node, or whose arguments it changes, before it asks
# their rule.

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


def special(
    trace: TraceState, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, Sequence[Any]]:
    """Return the answer of a special op, or ``UNANSWERED``; and the arguments to continue with."""
    if op is aten.lift_fresh.default:
        if type(args[0]) is not SymbolicTensor:
            return trace.lifting.constant(args[0], trace), args
    elif op is aten._to_copy.default:
        if isinstance(args[0], (bool, int, float, complex)):  # from vmap: the 2 in y * 2
            with dispatch.modes_disabled():
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
        with dispatch.modes_disabled():
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


_PICK_AND_ORDER = frozenset(
    (
        *(
            aten.t.default,
            aten.transpose.int,
            aten.permute.default,
            aten.select.int,
            aten.slice.Tensor,
        ),
        *(
            aten.detach.default,
            aten.alias.default,
            aten.split.Tensor,
            aten.unbind.int,
            aten.diagonal.default,
        ),
    )
)


@attrs.frozen(eq=False)
class OpPlan:
    """The properties that all calls of one overload share.

    Attributes:
        op: the overload.
        rule: the function that infers its outputs, if there is one.
        rule_name: its name, for origins.
        data_dependent: whether the rule makes unbacked symbols.
        same_as: for each output, the argument that it is (an in-place op's).
        view_of: for each output, the argument whose memory it shares.
        mutated: the arguments that are written to.
        names: the names of the arguments.
        is_view: whether any output shares memory.
        keeps_strides: whether outputs only pick and order dimensions of the argument that they
            view.
        taken_apart: the device types on which C++ decomposes it before a mode sees it, except in
            inference mode.
        special: whether it is one of the few ops that the tracer handles before their rule.
        changes_laziness: whether it conjugates or negates lazily.
        is_mutable: whether it writes to any argument.
        changes_shape: whether it changes the sizes or strides of its first argument in place.
        returns: whether it returns anything.
        ends_reshape: whether it may be the second of the two ops by which ``reshape`` copies.
    """

    op: OpOverload
    rule: Callable[..., Any] | None
    rule_name: str
    data_dependent: bool
    same_as: tuple[int | None, ...]
    view_of: tuple[int | None, ...]
    mutated: tuple[int, ...]
    names: tuple[str, ...]
    is_view: bool
    keeps_strides: bool
    taken_apart: frozenset[str]
    special: bool
    changes_laziness: bool
    is_mutable: bool
    changes_shape: bool
    returns: bool
    ends_reshape: bool


_LAZY = frozenset((aten._conj.default, aten._neg_view.default))
_plans: dict[int, OpPlan] = {}
"""The plans, by ``id`` of the overload, which its plan keeps alive (hashing an overload runs Python
code).
"""


def plan_of(op: OpOverload) -> OpPlan:
    """Return the plan of an overload, made once in a process."""
    return _plans.get(id(op)) or _made(op)


def forget(op: OpOverload) -> None:
    """Drop the plans of an overload whose rule was registered or replaced.

    By its name: an operator that was defined again may have two overload objects in use.
    """
    for key in [key for key, plan in list(_plans.items()) if str(plan.op) == str(op)]:
        del _plans[key]


def _made(op: OpOverload) -> OpPlan:
    rule = registry.lookup(op)
    aliasing = meta_fns.aliasing(op)
    found = _plans[id(op)] = OpPlan(
        op,
        None if rule is None else rule.fn,
        "" if rule is None else rule.name,
        rule is not None and rule.data_dependent,
        aliasing.same_as,
        aliasing.view_of,
        aliasing.mutated,
        aliasing.names,
        any(owner is not None for owner in aliasing.view_of),
        op in _PICK_AND_ORDER,
        decompositions.taken_apart_on(op),
        op in SPECIAL or op.namespace == "profiler",
        op in _LAZY,
        op._schema.is_mutable,
        torch.Tag.inplace_view in op.tags,
        bool(op._schema.returns),
        op is aten._unsafe_view.default,
    )
    return found
