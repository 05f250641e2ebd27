"""The axes of a broadcast of padded tensors."""

from __future__ import annotations

from collections.abc import Sequence

from meta_fns.core.sizes import same
from meta_fns.padding.axes import Axis, agree, length, padded_sizes
from meta_fns.padding.refusals import Refuse

__all__ = ["broadcast_axes", "need_agreement"]


def broadcast_axes(operands: Sequence[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    """The axes of the broadcast of tensors with these axes, aligned at the last dimension.

    Raises: Refuse where two of them have their valid positions at different places.
    """
    ndim = max((len(axes) for axes in operands), default=0)
    found: list[Axis] = [()] * ndim
    for axes in operands:
        for dim, axis in enumerate(axes, ndim - len(axes)):
            if not axis:
                continue
            if found[dim]:
                need_agreement(found[dim], axis)
            else:
                found[dim] = axis
    return tuple(found)


def need_agreement(a: Axis, b: Axis) -> None:
    """Raise Refuse if two axes do not have their valid positions at the same places, provably."""
    if not agree(a, b):
        if same(length(a), length(b)):
            text = (
                f"dimensions of {_text(a)} and of {_text(b)} have their valid positions at "
                "different places"
            )
            remedy = "do not merge the sizes that one of them is made of before this op"
        else:
            text = (
                f"dimensions of {_text(a)} and of {_text(b)} are not known to have the same padding"
            )
            remedy = "torch._check that they are equal, or give them the same name in dynamic="
        raise Refuse(text, *padded_sizes((a, b)), remedy=remedy)


def _text(axis: Axis) -> str:
    return "*".join(map(str, axis)) or "1"
