"""The plan of an op: the properties that the tracer needs, looked up once for each overload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch

import meta_fns
from meta_fns.core import registry
from meta_fns.torch_internals import OpOverload
from symshape.tracing.intercept.torch_functions import decompositions
from symshape.tracing.special_ops import SPECIAL

aten = torch.ops.aten
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
