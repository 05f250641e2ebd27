"""Rules for operators that users define, for tracing, cost models and padded programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import meta_fns
from meta_fns.core import registry
from symshape.tracing import op_plans


def register_rule(
    op: Any,
    *,
    shape: Callable[..., Any] | None = None,
    cost: meta_fns.CostRule | Callable[[meta_fns.OpCall], Any] | None = None,
    padding: Callable[..., Any] | Literal["pointwise"] | None = None,
    name: str | None = None,
) -> None:
    """Register the shape, the cost and the padding rule of a custom operator (``torch.library``).

    Programs that are traced afterwards use the rules: a size stays symbolic through the operator,
    its work is counted, and a padded program (``runner="padded"``, CUDA graphs) may hold it. The
    arguments are those of ``meta_fns.register_rule``, where each is explained.

    Raises:
        meta_fns.MetaError: the operator does not exist, is one of torch's own, or has no shape
            rule.

    >>> import torch, symshape
    >>> @torch.library.custom_op("symshape_doc::shift", mutates_args=())
    ... def shift(x: torch.Tensor, by: float) -> torch.Tensor:
    ...     return (x + by).contiguous()
    >>> symshape.register_rule(
    ...     shift,
    ...     shape=lambda x, by: x.fresh(),
    ...     cost=lambda call: call.results[0].numel(),
    ...     padding="pointwise",
    ... )
    >>> traced = symshape.trace(lambda x: shift(x, 1.0).sum(0), torch.zeros(5, 3))
    >>> traced(torch.ones(7, 3)).tolist()
    [14.0, 14.0, 14.0]
    """
    rule = meta_fns.register_rule(op, shape=shape, cost=cost, padding=padding, name=name)
    op_plans.forget(registry.resolve(rule.overload))
