"""Matrix products of padded tensors: a padded contraction needs zero on one side and finite numbers
on the other.
"""

from __future__ import annotations

from typing import Any

from meta_fns.padding.axes import is_padded, length, normal
from meta_fns.padding.broadcasting import broadcast_axes, need_agreement
from meta_fns.padding.padded import Emitter, Padded, apply
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import compacted, masked

__all__ = ["added_product", "dot", "grouped_product", "product"]


def contracted(emit: Emitter, a: Padded, b: Padded) -> tuple[Padded, Padded]:
    """The factors, made such that padding along the contracted dimension adds nothing."""
    inner = a.ndim - 1, max(b.ndim - 2, 0)
    need_agreement(a.axes[inner[0]], b.axes[inner[1]])
    if not is_padded(a.axes[inner[0]]):
        return a, b
    if not (a.fill.is_constant(0) and b.fill.finite) and not (
        b.fill.is_constant(0) and a.fill.finite
    ):
        a, b = masked(emit, a, 0, {inner[0]}), masked(emit, b, 0, {inner[1]})
    return a, b


def product(emit: Emitter, self: Padded, mat2: Padded) -> Padded:
    """``(n, k) @ (k, m)``, and with a batch dimension on both; ``(n, k) @ (k,)``."""
    if self.ndim == 3:
        need_agreement(self.axes[0], mat2.axes[0])
    a, b = contracted(emit, self, mat2)
    return Padded(apply(emit, a, b), (*a.axes[:-1], *b.axes[a.ndim - 1 :]))


def dot(emit: Emitter, self: Padded, tensor: Padded) -> Padded:
    """``(n,) @ (n,)``, the one conjugated or not."""
    return Padded(apply(emit, *contracted(emit, self, tensor)), ())


def added_product(emit: Emitter, self: Padded, mat1: Padded, mat2: Padded, **kwargs: Any) -> Padded:
    """``self + mat1 @ mat2``."""
    if mat1.ndim == 3:
        need_agreement(mat1.axes[0], mat2.axes[0])
    a, b = contracted(emit, mat1, mat2)
    axes = (*a.axes[:-1], *b.axes[a.ndim - 1 :])
    broadcast_axes([self.axes, axes])
    return Padded(apply(emit, self, a, b, **kwargs), axes)


def grouped_product(
    emit: Emitter, self: Padded, mat2: Padded, offs: Padded | None = None, *rest: Any
) -> Padded:
    """``(n, k), (g, k, m) -> (n, m)``, groups of rows that end at ``offs``: rows behind the last of
    them are padding.

    Raises: Refuse where anything but the rows is padded.
    """
    if (
        self.ndim != 2
        or mat2.ndim != 3
        or offs is None
        or mat2.sizes
        or offs.sizes
        or is_padded(self.axes[1])
    ):
        raise Refuse("only rows of a product of groups may be padded", *self.sizes, *mat2.sizes)
    return Padded(
        apply(emit, compacted(emit, self, 0), mat2, offs, *rest),
        (normal((length(self.axes[0]),)), mat2.axes[2]),
    )
