"""Reading padded tensors by index: padding of an index is made valid, and padding of what is read
is never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.dims import wrap_dim
from meta_fns.padding.axes import Axis, agree, capacity_of, is_padded, padded_sizes
from meta_fns.padding.broadcasting import broadcast_axes
from meta_fns.padding.padded import Emitter, Padded, apply
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import compacted, index_in, looked_at

__all__ = ["embedding", "gather", "index", "index_select"]

_aten = torch.ops.aten


def embedding(emit: Emitter, weight: Padded, indices: Padded, *rest: Any, **kwargs: Any) -> Padded:
    """Rows of a matrix."""
    indices = _needed(emit, indices, weight.axes[1:])
    found = index_in(emit, indices, weight.axes[0], wraps=False)
    # padding_idx and the rest matter to gradients only
    tensor = emit.call(emit.op, weight.tensor, found.tensor)
    return Padded(tensor, (*indices.axes, *weight.axes[1:]))


def index_select(emit: Emitter, self: Padded, dim: int, index: Padded) -> Padded:
    """Positions of one dimension."""
    if not self.ndim or index.ndim != 1:
        raise Refuse("an index_select of or by a scalar")
    at = wrap_dim(dim, self.ndim)
    self = compacted(emit, self, at)
    index = _needed(emit, index, (*self.axes[:at], *self.axes[at + 1 :]))
    found = index_in(emit, index, self.axes[at], wraps=False)
    axes = (*self.axes[:at], *index.axes, *self.axes[at + 1 :])
    return Padded(apply(emit, self, at, found), axes, valid=self.valid)


def gather(emit: Emitter, self: Padded, dim: int, index: Padded, **kwargs: Any) -> Padded:
    """For each position, the one of ``self`` that the index names along ``dim``."""
    if self.ndim != index.ndim or not self.ndim:
        raise Refuse("a gather of or by a scalar")
    at = wrap_dim(dim, self.ndim)
    self = compacted(emit, self, at)
    for i, (own, other) in enumerate(zip(self.axes, index.axes, strict=True)):
        if i != at and not agree(own, other) and max(len(own), len(other)) > 1:
            raise Refuse("dimensions are merged differently", *padded_sizes((own, other)))
        if i != at and capacity_of(other) > capacity_of(own):
            raise Refuse(
                "an index reaches beyond the tensor in memory", *padded_sizes((own, other))
            )
    found = index_in(emit, index, self.axes[at], wraps=False)
    return Padded(apply(emit, self, at, found, **kwargs), index.axes, valid=self.valid)


def index(emit: Emitter, self: Padded, indices: Sequence[Padded | None]) -> Padded:
    """``self[i, j, :, ...]``: the broadcast of the indices stands where they stood, or first if
    they stood apart.
    """
    dims = [dim for dim, each in enumerate(indices) if each is not None]
    for dim in dims:
        self = compacted(emit, self, dim)
    read: tuple[Axis, ...] = broadcast_axes([each.axes for each in indices if each is not None])
    rest = [axis for dim, axis in enumerate(self.axes) if dim not in dims]
    given = [each and looked_at(emit, each, (*read, *rest)) for each in indices]
    found = [
        each and index_in(emit, each, self.axes[dim], wraps=True) for dim, each in enumerate(given)
    ]
    adjacent = dims == list(range(dims[0], dims[0] + len(dims)))
    at = dims[0] if adjacent else 0
    return Padded(apply(emit, self, found), (*rest[:at], *read, *rest[at:]), valid=self.valid)


def _needed(emit: Emitter, index: Padded, rest: Sequence[Axis]) -> Padded:
    """Indices of ops that look at them even for empty results on the CPU, and nowhere else."""
    return index if index.device.type == "cpu" else looked_at(emit, index, rest)


def unpadded(x: Padded, dims: Sequence[int], what: str) -> None:
    """Raise Refuse if one of these dimensions is padded."""
    for dim in dims:
        if is_padded(x.axes[dim]):
            raise Refuse(what, *padded_sizes((x.axes[dim],)))
