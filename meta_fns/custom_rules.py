"""Rules for operators that users define (``torch.library``): the shape, the cost and the padding of
a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import attrs

from meta_fns.core import registry
from meta_fns.core.cost_rule import CostRule, OpCall
from meta_fns.core.registry import Rule
from meta_fns.core.sizes import Size
from meta_fns.errors import MetaError
from meta_fns.padding.pointwise import pointwise
from meta_fns.torch_internals import OpOverload, OpOverloadPacket

__all__ = ["register_rule"]

_OURS = ("aten", "prims", "profiler", "c10d", "_c10d_functional")


def register_rule(
    op: Any,
    *,
    shape: Callable[..., Any] | None = None,
    cost: CostRule | Callable[[OpCall], Size] | None = None,
    padding: Callable[..., Any] | Literal["pointwise"] | None = None,
    name: str | None = None,
) -> Rule:
    """Register what a call of a custom operator returns, costs, and makes of padded tensors.

    A second registration for an operator replaces what it gives, and keeps the rest.

    Args:
        op: the operator: ``torch.library.custom_op``'s result, ``torch.ops.mylib.scale`` or its
            overload, or ``"mylib::scale"``.
        shape: a function with the operator's own parameters: a ``TensorSpec`` stands for each
            tensor, and sizes may be symbolic. The function returns the ``TensorSpec`` of the
            result, or a tuple of them. Needed once.
        cost: the arithmetic operations of a call as a function of an ``OpCall``, whose tensors are
            each read or written once by one kernel; or a ``CostRule``, which says all of these.
            Without it a call has no known cost.
        padding: ``"pointwise"`` for an operator that computes each element of its result from the
            elements at the same place (after broadcasting); or a padding rule (see
            ``meta_fns.padding.padded``). Without it the operator is not padded.
        name: the subject of guards that come from the rule, in words; by default the operator's
            name.

    Raises:
        MetaError: the operator does not exist, is one of torch's own, or has no shape rule.

    >>> import torch, meta_fns
    >>> @torch.library.custom_op("meta_fns_doc::halve", mutates_args=())
    ... def halve(x: torch.Tensor) -> torch.Tensor:
    ...     return (x / 2).contiguous()
    >>> def additions(call):
    ...     return call.results[0].numel()
    >>> rule = register_rule(halve, shape=lambda x: x.fresh(), cost=additions, padding="pointwise")
    >>> work = meta_fns.work_of("meta_fns_doc.halve.default", (torch.ones(2, 3),))
    >>> (
    ...     meta_fns.infer("meta_fns_doc.halve.default", (torch.ones(2, 3),)).sizes,
    ...     work.flops,
    ...     work.read,
    ... )
    ((2, 3), 6, 24)
    """
    overload = _overload(op)
    if overload.namespace in _OURS:
        raise MetaError(f"{overload} is an operator of torch: its rule is in meta_fns.ops")
    before = registry.own_rule(str(overload))
    if shape is None and before is None:
        raise MetaError(
            f"{overload} has no shape rule yet: pass shape=, a function of the operator's own "
            "parameters"
        )
    made = before or Rule(str(overload), shape or _unused, name=overload._schema.name)
    given: dict[str, Any] = {
        "fn": shape,
        "cost": _cost(cost),
        "padding": _padding(padding),
        "name": name,
    }
    return registry.replace(
        attrs.evolve(made, **{key: value for key, value in given.items() if value is not None})
    )


def _unused(*_: Any) -> Any:
    raise AssertionError("a rule without a shape is never registered")


def _overload(op: Any) -> OpOverload:
    """Return the overload that a custom operator's object or name means."""
    if isinstance(op, str):
        return registry.resolve(op)
    found = getattr(op, "_opoverload", op)
    if isinstance(found, OpOverloadPacket):
        overloads = found.overloads()  # type: ignore[no-untyped-call]
        if len(overloads) != 1:
            raise MetaError(f"{found} has the overloads {', '.join(overloads)}: pass one of them")
        found = getattr(found, overloads[0])
    if not isinstance(found, OpOverload):
        raise MetaError(
            f"an operator of torch.library or its name is needed, not {type(op).__name__}"
        )
    return found


def _cost(cost: CostRule | Callable[[OpCall], Size] | None) -> CostRule | None:
    return cost if cost is None or isinstance(cost, CostRule) else CostRule("custom", cost)


def _padding(padding: Callable[..., Any] | str | None) -> Callable[..., Any] | None:
    if padding is None or callable(padding):
        return padding
    if padding != "pointwise":
        raise MetaError(f"padding is a padding rule or 'pointwise', not {padding!r}")
    return pointwise
