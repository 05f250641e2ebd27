"""Losses of padded tensors: each element's own, then the sum or the mean of the valid ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from meta_fns.core.sizes import Size
from meta_fns.padding.axes import is_padded, varies
from meta_fns.padding.broadcasting import broadcast_axes
from meta_fns.padding.fills import GARBAGE
from meta_fns.padding.padded import Emitter, Padded, lowered
from meta_fns.padding.reductions import mean_of
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import compacted, index_in, masked, relaid

__all__ = ["by_element", "classes", "negative_log_likelihood"]

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
    # its kernel refuses what is no probability
    if emit.op._schema.name == "aten::binary_cross_entropy":
        self, target = masked(emit, self, 0), masked(emit, target, 0)
    each_one = Padded(emit.call(emit.op, self.tensor, target.tensor, **plain), axes)
    if reduction == _NONE:
        return each_one
    dims = frozenset(range(len(axes)))
    if reduction == _MEAN:
        return mean_of(emit, each_one, dims, keepdim=False, dtype=each_one.dtype)
    filled = masked(emit, each_one, 0)
    return Padded(emit.call(_aten.sum.dim_IntList, filled.tensor, sorted(dims), False), ())


def classes(
    emit: Emitter,
    self: Padded,
    target: Padded,
    weight: Padded | None,
    ignore_index: Size,
    *,
    refuses: bool = True,
) -> tuple[Padded, Padded, Padded | None]:
    """Scores of classes ``(n, c, …)``, the class of each row as they lie, rows of padding the
    ignored one, and weights.

    Padded classes are no row's own: what eager ``refuses`` stays out of range (gradients look at
    nothing, as their loss has refused it).
    """
    if varies(ignore_index) or self.ndim not in (2, 4):
        raise Refuse("a class that is ignored depends on the sizes", *self.sizes)
    for dim, axis in enumerate((self.axes[0], *self.axes[2:])):
        target = relaid(emit, target, dim, axis)
    self = compacted(emit, self, 1)
    if is_padded(self.axes[1]):
        weight = weight and compacted(emit, weight, 0)
    if is_padded(self.axes[1]) and refuses:
        ignored = emit.call(_aten.eq.Scalar, target.tensor, int(ignore_index))
        inside = index_in(emit, target, self.axes[1], wraps=False)
        kept = emit.call(_aten.where.self, ignored, target.tensor, inside.tensor)
        target = target.with_(tensor=kept, fill=GARBAGE)
    return self, masked(emit, target, int(ignore_index)), weight


def negative_log_likelihood(
    emit: Emitter,
    self: Padded,
    target: Padded,
    weight: Padded | None,
    reduction: int,
    ignore_index: Size,
) -> tuple[Padded, Padded]:
    """``nll_loss``: rows of padding have the class that is ignored, also in the number that a mean
    divides by.
    """
    self, filled, weight = classes(emit, self, target, weight, ignore_index)
    target = filled
    loss, total = emit.call(
        emit.op, self.tensor, filled.tensor, lowered(weight), reduction, ignore_index
    )
    return Padded(loss, target.axes if reduction == _NONE else ()), Padded(total, ())
