"""Calls of op_db's samples as cases of the poison harness: arguments in all the forms that an op
takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from meta_fns.core.derived_rules import functional_rule
from meta_fns.core.registry import lookup
from tests.meta_fns.opdb import Call
from tests.meta_fns.padding.cases import Case
from tests.meta_fns.padding.poison import Arg

# Kernels that end the process for empty tensors; memory that nobody has written to; classes that
# nobody checks.
SKIPPED = (
    *(
        "scaled_dot_product",
        "native_layer_norm_backward",
        "native_batch_norm_backward",
        "aten.empty",
        "aten.new_empty",
    ),
    *("nll_loss_backward", "nll_loss2d_backward"),
)


def padded_calls(calls: Iterable[Call]) -> Iterator[Case]:
    """A case for each call of an op with a padding rule; integers are 0 or 1 there, valid as
    indices and divisors.
    """
    for call in calls:
        rule = lookup(call.op)
        rule = rule if rule is None or rule.padding is not None else functional_rule(call.op)
        leaves, _ = tree_flatten((call.args, call.kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if rule is None or rule.padding is None or any(each in str(call.op) for each in SKIPPED):
            continue
        if not any(each.dim() for each in tensors) or any(
            each.layout is not torch.strided for each in tensors
        ):
            continue
        if any(each.dtype.is_complex for each in tensors):
            continue
        yield _case(call)


def _case(call: Call) -> Case:
    leaves, tree = tree_flatten((call.args, call.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    writes = call.op._schema.is_mutable

    def fn(*tensors: torch.Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor.clone() if writes else tensor
        args, kwargs = tree_unflatten(filled, tree)
        return call.op(*args, **kwargs)

    arguments = tuple(
        Arg(tuple(leaves[i].shape), leaves[i].dtype, 1 if "div" in str(call.op) else 0, 2)
        for i in places
    )
    return Case(str(call), fn, arguments, tolerance=1e-3)
