"""Ops that make each row of their result from whole rows of their arguments, which are padded only
as wholes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.padding.axes import Axis, is_padded, padded_sizes
from meta_fns.padding.broadcasting import broadcast_axes, need_agreement
from meta_fns.padding.padded import Emitter, Padded, apply, lowered
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import masked

__all__ = ["cell", "distances", "in_buckets", "is_in", "long_cell", "sampled", "searched"]

_aten = torch.ops.aten


def _need_whole(axes: Sequence[Axis], what: str) -> None:
    if any(map(is_padded, axes)):
        raise Refuse(f"{what} are padded", *padded_sizes(axes), remedy="keep them constant")


def distances(emit: Emitter, x1: Padded, x2: Padded, p: float, compute_mode: int | None) -> Padded:
    """``(…, n, d), (…, m, d) -> (…, n, m)``: what both hold at padding of ``d`` is 0, and no
    distance.
    """
    need_agreement(x1.axes[-1], x2.axes[-1])
    axes = (*broadcast_axes([x1.axes[:-2], x2.axes[:-2]]), x1.axes[-2], x2.axes[-2])
    pair = (masked(emit, each, 0, {each.ndim - 1}).tensor for each in (x1, x2))
    # How the distances are computed depends on how many there are, unless it is said.
    mode = compute_mode
    if mode in (None, 0) and p == 2:
        few = all(not is_padded(each.axes[-2]) for each in (x1, x2))
        mode = compute_mode if few else 2
    return Padded(emit.call(emit.op, *pair, p, mode), axes)


def cell(emit: Emitter, input: Padded, hx: Padded, *rest: Any) -> Padded:
    """One step of a recurrent layer: ``(n, d), (n, h) -> (n, h)``."""
    _need_features(input, hx, *rest)
    return Padded(
        apply(emit, input, hx, *rest), (input.axes[0], *hx.axes[1:]) if input.ndim == 2 else hx.axes
    )


def long_cell(emit: Emitter, input: Padded, hx: Sequence[Padded], *rest: Any) -> tuple[Padded, ...]:
    """One step of an LSTM, with two states."""
    _need_features(input, *hx, *rest)
    return tuple(Padded(each, hx[0].axes) for each in apply(emit, input, list(hx), *rest))


def _need_features(*tensors: Padded | None) -> None:
    rows = [each for each in tensors[:3] if each is not None and each.ndim == 2]
    _need_whole(
        [axis for each in tensors if each is not None for axis in each.axes[-1:]], "features"
    )
    for each in rows[1:]:
        if each.sizes:
            need_agreement(rows[0].axes[0], each.axes[0])
    if any(each is not None and each.sizes for each in tensors[3:]):
        raise Refuse("weights are padded", *rows[0].sizes)


def in_buckets(emit: Emitter, self: Padded, boundaries: Padded, **kwargs: Any) -> Padded:
    """``bucketize``: for each element the place in a vector."""
    _need_whole(boundaries.axes, "boundaries")
    return Padded(emit.call(emit.op, self.tensor, boundaries.tensor, **kwargs), self.axes)


def searched(emit: Emitter, sorted_sequence: Padded, self: Padded, **kwargs: Any) -> Padded:
    """``searchsorted``: for each element the place in a row, which is whole.

    An index of the sorter that is out of range is refused, in the rows of padding too.
    """
    _need_whole(sorted_sequence.axes[-1:], "rows that are searched")
    sorter = kwargs.get("sorter")
    if sorter is not None:
        for own, other in zip(sorter.axes, sorted_sequence.axes, strict=True):
            need_agreement(own, other)
        kwargs = {**kwargs, "sorter": masked(emit, sorter, 0)}
    if sorted_sequence.ndim > 1:
        for own, other in zip(self.axes[:-1], sorted_sequence.axes[:-1], strict=True):
            need_agreement(own, other)
    plain = {name: lowered(each) for name, each in kwargs.items()}
    return Padded(emit.call(emit.op, sorted_sequence.tensor, self.tensor, **plain), self.axes)


def is_in(emit: Emitter, elements: Padded, test_elements: Padded, **kwargs: Any) -> Padded:
    """For each element whether it is among others.

    The kernel sorts elements that are said to be unique together with many others: of two that are
    equal it takes the first one to be found, and padding may equal a valid element.
    """
    _need_whole(test_elements.axes, "elements that are compared with")
    if any(map(is_padded, elements.axes)):
        kwargs = {**kwargs, "assume_unique": False}
    return Padded(
        emit.call(emit.op, elements.tensor, test_elements.tensor, **kwargs), elements.axes
    )


def sampled(emit: Emitter, input: Padded, grid: Padded, *rest: Any) -> Padded:
    """``grid_sampler``: ``(n, c, *positions), (n, *wanted, d) -> (n, c, *wanted)``."""
    _need_whole(input.axes[2:], "positions that are read")
    need_agreement(input.axes[0], grid.axes[0])
    grid = masked(emit, grid, 0)  # kernels turn positions into integers
    return Padded(apply(emit, input, grid, *rest), (*input.axes[:2], *grid.axes[1:-1]))
