"""Losses of padded tensors: each element's own, then the sum or the mean of the valid ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from meta_fns.core.sizes import Size
from meta_fns.padding.axes import is_padded, padded_sizes, varies
from meta_fns.padding.broadcasting import broadcast_axes
from meta_fns.padding.padded import Emitter, Padded, lowered
from meta_fns.padding.reductions import mean_of
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import masked, relaid

__all__ = ["by_element", "negative_log_likelihood"]

_aten = torch.ops.aten
_NONE, _MEAN = 0, 1


def by_element(emit: Emitter, self: Padded, target: Padded, *args: Any, **kwargs: Any) -> Padded:
    """A loss of each pair of elements, reduced as asked for."""
    names = [argument.name for argument in emit.op._schema.arguments]
    given: Mapping[str, Any] = dict(zip(names[2:], args, strict=False)) | kwargs
    reduction = given.get("reduction", _MEAN)
    operands = [each for each in (self, target, *given.values()) if isinstance(each, Padded)]
    axes = broadcast_axes([each.axes for each in operands])
    plain = {name: lowered(arg) for name, arg in given.items()} | {"reduction": _NONE}
    if emit.op._schema.name == "aten::binary_cross_entropy":  # its kernel refuses what is no probability
        self, target = masked(emit, self, 0), masked(emit, target, 0)
    each_one = Padded(emit.call(emit.op, self.tensor, target.tensor, **plain), axes)
    if reduction == _NONE:
        return each_one
    dims = frozenset(range(len(axes)))
    if reduction == _MEAN:
        return mean_of(emit, each_one, dims, keepdim=False, dtype=each_one.dtype)
    filled = masked(emit, each_one, 0)
    return Padded(emit.call(_aten.sum.dim_IntList, filled.tensor, sorted(dims), False), ())


def negative_log_likelihood(
    emit: Emitter, self: Padded, target: Padded, weight: Padded | None, reduction: int, ignore_index: Size
) -> tuple[Padded, Padded]:
    """``nll_loss``: rows of padding have the class that is ignored, also in the number that a mean divides by."""
    if varies(ignore_index) or self.ndim not in (2, 4):
        raise Refuse("a class that is ignored depends on the sizes", *self.sizes)
    if is_padded(self.axes[1]) or (weight is not None and weight.sizes):
        raise Refuse("classes are padded", *padded_sizes((self.axes[1],)), remedy="keep the number of classes constant")
    for dim, axis in enumerate((self.axes[0], *self.axes[2:])):
        target = relaid(emit, target, dim, axis)
    filled = masked(emit, target, int(ignore_index))
    loss, total = emit.call(emit.op, self.tensor, filled.tensor, lowered(weight), reduction, ignore_index)
    return Padded(loss, target.axes if reduction == _NONE else ()), Padded(total, ())
