"""Views of padded tensors: dimensions swapped, added, merged and split; what is padding stays
padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.dims import wrap_dim, wrap_dims
from meta_fns.core.sizes import Size
from meta_fns.padding.axes import Axis, agree, capacity_of, is_padded, normal, regroup
from meta_fns.padding.fills import ZERO
from meta_fns.padding.padded import Emitter, Padded, lowered
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import relaid

__all__ = [
    "as_complex",
    "as_real",
    "expand",
    "permute",
    "put_back",
    "reshaped",
    "same",
    "squeeze",
    "transpose",
    "transposed_matrix",
    "triangle",
    "unsqueeze",
    "view",
]

_aten = torch.ops.aten


def same(emit: Emitter, self: Padded, *rest: Any, **kwargs: Any) -> Padded:
    """The tensor itself."""
    return self


def view(emit: Emitter, self: Padded, size: Sequence[Size], *rest: Any) -> Padded:
    """The same elements under other sizes; a copy in memory where the capacities do not lie as the
    sizes would.

    Where the new sizes are not made of whole old ones, the valid elements are read one by one.
    """
    spec = emit.results[0]
    assert spec is not None
    try:
        return reshaped(emit, self, regroup(self.axes, spec.sizes))
    except Refuse:
        return _gathered(emit, self, tuple(normal((size,)) for size in spec.sizes))


def put_back(emit: Emitter, x: Padded, axes: tuple[Axis, ...]) -> Padded:
    """A view under the axes of what it is a view of: read one by one where it had to be.

    Raises: Refuse where the two are not known to have as many elements.
    """
    mine, theirs = (normal(size for axis in each for size in axis) for each in (x.axes, axes))
    return reshaped(emit, x, axes) if agree(mine, theirs) else _gathered(emit, x, axes)


def _gathered(emit: Emitter, x: Padded, axes: tuple[Axis, ...]) -> Padded:
    """``x`` under axes that share sizes with its own at the ends only."""
    least = min(x.ndim, len(axes))
    head = next((i for i in range(least) if not agree(x.axes[i], axes[i])), least)
    tail = next(
        (i for i in range(least - head) if not agree(x.axes[-1 - i], axes[-1 - i])), least - head
    )
    old, new = (
        [size for axis in each[head : len(each) - tail] for size in axis] for each in (x.axes, axes)
    )
    flat = reshaped(emit, x, (*x.axes[:head], normal(old), *x.axes[x.ndim - tail :]))
    return reshaped(emit, relaid(emit, flat, head, normal(new)), axes)


def reshaped(emit: Emitter, x: Padded, axes: tuple[Axis, ...]) -> Padded:
    """``x`` under other axes of the same padded sizes."""
    return x.with_(
        tensor=emit.call(_aten.reshape.default, x.tensor, list(map(capacity_of, axes))), axes=axes
    )


def permute(emit: Emitter, self: Padded, dims: Sequence[int]) -> Padded:
    """Dimension i of the result is dimension ``dims[i]``."""
    order = wrap_dims(dims, self.ndim)
    tensor = emit.call(_aten.permute.default, self.tensor, list(order))
    return self.with_(tensor=tensor, axes=tuple(self.axes[i] for i in order))


def transpose(emit: Emitter, self: Padded, dim0: int, dim1: int) -> Padded:
    """Two dimensions swapped."""
    a, b = wrap_dim(dim0, self.ndim), wrap_dim(dim1, self.ndim)
    order = list(range(self.ndim))
    if order:
        order[a], order[b] = order[b], order[a]
    return permute(emit, self, order)


def transposed_matrix(emit: Emitter, self: Padded) -> Padded:
    """The transpose of a matrix; vectors and scalars as they are."""
    return self if self.ndim < 2 else permute(emit, self, (1, 0))


def unsqueeze(emit: Emitter, self: Padded, dim: int) -> Padded:
    """A new dimension of size 1."""
    at = wrap_dim(dim, self.ndim + 1)
    tensor = emit.call(_aten.unsqueeze.default, self.tensor, at)
    return self.with_(tensor=tensor, axes=(*self.axes[:at], (), *self.axes[at:]))


def squeeze(emit: Emitter, self: Padded, dim: Any = None) -> Padded:
    """Without dimensions of size 1: those that the true result lacks.

    Raises: Refuse where a padded dimension is one of them.
    """
    spec = emit.results[0]
    assert spec is not None
    dims = (
        range(self.ndim)
        if dim is None
        else wrap_dims([dim] if isinstance(dim, int) else dim, self.ndim)
    )
    gone = {i for i in dims if i < self.ndim and not self.axes[i]}
    if self.ndim - len(gone) != len(spec.sizes):
        raise Refuse("whether a padded dimension is of size 1 depends on the sizes", *self.sizes)
    return reshaped(emit, self, tuple(axis for i, axis in enumerate(self.axes) if i not in gone))


def expand(emit: Emitter, self: Padded, size: Sequence[Size], **kwargs: Any) -> Padded:
    """Dimensions of size 1, and new leading ones, repeated: padding made so repeats what is
    valid.
    """
    spec = emit.results[0]
    assert spec is not None
    offset = len(spec.sizes) - self.ndim
    axes: list[Axis] = []
    fill = self.fill
    for dim, wanted in enumerate(spec.sizes):
        old = self.axes[dim - offset] if dim >= offset else ()
        if old:
            axes.append(old)
            continue
        axes.append(normal((wanted,)))
        if is_padded(axes[-1]):
            fill = self.fill.join(self.valid) if self.sizes else self.valid
    tensor = emit.call(_aten.expand.default, self.tensor, list(map(capacity_of, axes)))
    return self.with_(tensor=tensor, axes=tuple(axes), fill=fill)


def as_real(emit: Emitter, self: Padded) -> Padded:
    """Complex numbers as pairs in a new last dimension."""
    return Padded(emit.call(emit.op, self.tensor), (*self.axes, (2,)))


def as_complex(emit: Emitter, self: Padded) -> Padded:
    """Pairs in the last dimension as complex numbers; copied where they do not lie in memory as the
    op wants.
    """
    if self.axes[-1] != (2,):
        raise Refuse("pairs of numbers are padded", *self.sizes)
    tensor = emit.call(_aten.clone.default, self.tensor, memory_format=torch.contiguous_format)
    return Padded(emit.call(emit.op, tensor), self.axes[:-1])


def triangle(emit: Emitter, self: Padded, diagonal: Any = 0) -> Padded:
    """``tril`` and ``triu``: what is kept depends on the position alone."""
    for axis in self.axes[-2:]:
        if len(axis) > 1:
            raise Refuse("a triangle over merged dimensions", *self.sizes)
    if not isinstance(diagonal, int):
        raise Refuse("a diagonal that depends on the sizes", diagonal)
    tensor = emit.call(emit.op, self.tensor, lowered(diagonal))
    return self.with_(tensor=tensor, fill=self.fill.join(ZERO), valid=self.valid.join(ZERO))
