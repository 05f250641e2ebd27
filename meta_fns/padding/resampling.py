"""Resampling of padded tensors: each output position reads the positions that the true sizes say,
with their weights.

A kernel in memory would scale by capacities.  One dimension after the other is resampled instead,
by reading at positions computed at run time, so that nothing but what eager reads is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.sizes import Size
from meta_fns.padding.axes import (
    Axis,
    capacity,
    capacity_of,
    is_padded,
    normal,
    padded_sizes,
    prefix,
    varies,
)
from meta_fns.padding.padded import Emitter, Handle, Padded, apply
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import positions

__all__ = ["adaptive_average", "upsample"]

_aten = torch.ops.aten
_CUBIC = -0.75  # the coefficient of torch's cubic convolution
_SIZES = "size= in place of scale_factor=, or recompute_scale_factor=True"


def upsample(emit: Emitter, self: Padded, output_size: Sequence[Size], *options: Any) -> Padded:
    """``(n, c, *spatial) -> (n, c, *output_size)``, nearest, linear or cubic."""
    spatial = range(2, self.ndim)
    axes = (*self.axes[:2], *(normal((size,)) for size in output_size))
    if not any(is_padded(axis) for axis in (*self.axes[2:], *axes[2:])):
        return Padded(apply(emit, self, output_size, *options), axes)
    if not self.dtype.is_floating_point:
        raise Refuse(f"resampling of {self.dtype}", *self.sizes)
    names = [argument.name for argument in emit.op._schema.arguments[2:]]
    given = dict(zip(names, options, strict=False))
    wide = torch.float64 if self.dtype is torch.float64 else torch.float32
    x = _to(emit, self.tensor, wide)
    scales = [value for name, value in given.items() if name.startswith("scales")] or [None] * len(
        spatial
    )
    pairs = [(prefix(self.axes[dim]), size) for dim, size in zip(spatial, output_size, strict=True)]
    on_cpu = self.device.type == "cpu"
    if (
        on_cpu
        and emit.op._schema.name == "aten::upsample_nearest3d"
        and any(
            scale is not None and (_depends_on_kernel(scale) or not _is_scaled(*pair))
            for scale, pair in zip(scales, pairs, strict=True)
        )
    ):
        raise Refuse(
            "for this scale factor kernels differ in what is nearest", *self.sizes, remedy=_SIZES
        )
    for dim, (size, wanted), scale in zip(spatial, pairs, scales, strict=True):
        kept = _kept(emit, (size, wanted), pairs, on_cpu=on_cpu)
        x = _resampled(
            emit, x, dim, size, wanted, given.get("align_corners", False), scale, wide, kept
        )
    sizes = padded_sizes((*self.axes[2:], *axes[2:]))
    emit.repaired(f"gather: resampled to {', '.join(map(str, output_size))}", *sizes)
    return Padded(_to(emit, x, self.dtype), axes)


def _depends_on_kernel(scale: float) -> bool:
    """Return whether some kernels of nearest neighbours ignore a scale, at sizes that come out as
    they were or doubled.

    Source: nearest_idx in ATen/native/UpSample.h. The CPU's two-dimensional kernels use it, and of
    its three-dimensional ones that for channels last.
    """
    return 1 < scale < 1.5 or 2 < scale < 2.5


def _is_scaled(size: Size, wanted: Size) -> bool:
    """Return whether one size may be the other one times a scale: not if one alone varies."""
    return isinstance(size, int) == isinstance(wanted, int)


def _kept(
    emit: Emitter, pair: tuple[Size, Size], pairs: Sequence[tuple[Size, Size]], *, on_cpu: bool
) -> Handle | None:
    """Return whether eager takes each position of a dimension from the same position of the input,
    for any scale; None where it never does.

    Linear kernels do so for a dimension that keeps its size: on the CPU for each, with a weight of
    0 for the next position; elsewhere only if all keep theirs, and they copy.  Cubic kernels do so
    elsewhere alone.  Nearest kernels for two dimensions do so for each dimension, exact ones on
    devices alone.

    Source: compute_source_index_and_lambda and nearest_idx in ATen/native/UpSample.h;
    ATen/native/cuda/UpSampleBilinear2d.cu, UpSampleBicubic2d.cu and UpSampleNearest2d.cu.
    """
    name = emit.op._schema.name
    nearest = "nearest" in name
    copies = "2d" in name if nearest else "linear" in name
    if (on_cpu and ("exact" in name or "cubic" in name)) or not (copies or "cubic" in name):
        return None
    kept: Handle | None = None
    for size, wanted in [pair] if on_cpu or nearest else pairs:
        equal = emit.call(_aten.eq.Tensor, emit.size(size), emit.size(wanted))
        kept = equal if kept is None else emit.call(_aten.bitwise_and.Tensor, kept, equal)
    return kept


def _resampled(
    emit: Emitter,
    x: Handle,
    dim: int,
    size: Size,
    wanted: Size,
    corners: bool,
    scale: float | None,
    dtype: torch.dtype,
    kept: Handle | None,
) -> Handle:
    """Resample a dimension of ``x`` to another size; where ``kept`` holds, each position is taken
    from the same position of the input.
    """
    name, on_cpu = emit.op._schema.name, x.spec.device.type == "cpu"
    place = _to(emit, positions(emit, capacity(wanted), x.spec.device), dtype)
    if "nearest" in name:
        ratio = _ratio(emit, size, wanted, scale, dtype)
        exact = emit.call(_aten.add.Tensor, place, 0.5) if "exact" in name else place
        source = emit.call(_aten.floor.default, emit.call(_aten.mul.Tensor, exact, ratio))
        if kept is not None and on_cpu and scale is not None:
            half = emit.call(_aten.floor.default, emit.call(_aten.mul.Tensor, place, 0.5))
            twice = emit.call(_aten.mul.Tensor, emit.size(size), 2)
            doubled = emit.call(_aten.eq.Tensor, twice, emit.size(wanted))
            source = emit.call(_aten.where.self, doubled, half, source)
        if kept is not None and scale is not None:
            source = emit.call(_aten.where.self, kept, place, source)
        return _read(emit, x, dim, source, size)
    if corners:
        source = emit.call(_aten.mul.Tensor, place, _corner_ratio(emit, size, wanted, dtype))
    else:
        ratio = _ratio(emit, size, wanted, scale, dtype)
        middle = emit.call(_aten.mul.Tensor, emit.call(_aten.add.Tensor, place, 0.5), ratio)
        source = emit.call(_aten.sub.Tensor, middle, 0.5)
    if "cubic" not in name:
        source = emit.call(_aten.clamp.default, source, 0.0)
    next_one: Any = 1
    if kept is not None and on_cpu:
        source = emit.call(_aten.where.self, kept, place, source)
        # its neighbour has no weight
        next_one = emit.call(_aten.rsub.Scalar, _to(emit, kept, dtype), 1.0)
    first = emit.call(_aten.floor.default, source)
    share = emit.call(_aten.sub.Tensor, source, first)
    weights = _cubic(emit, share) if "cubic" in name else _linear(emit, share, next_one)
    total: Handle | None = None
    for offset, weight in weights:
        column = emit.call(_aten.view.default, weight, [-1, *[1] * (len(x.spec.sizes) - dim - 1)])
        part = _read(emit, x, dim, emit.call(_aten.add.Tensor, first, offset), size)
        part = emit.call(_aten.mul.Tensor, part, column)
        total = part if total is None else emit.call(_aten.add.Tensor, total, part)
    assert total is not None
    if kept is not None and not on_cpu:
        total = emit.call(_aten.where.self, kept, _read(emit, x, dim, place, size), total)
    return total


def _read(emit: Emitter, x: Handle, dim: int, place: Handle, size: Size) -> Handle:
    """The positions ``place`` of a dimension, those outside of its true size at its ends."""
    index = emit.call(_aten._to_copy.default, place, dtype=torch.int64)
    last = emit.call(_aten.sub.Tensor, emit.size(size), 1)
    index = emit.call(_aten.clamp.default, emit.call(_aten.minimum.default, index, last), 0)
    made: Handle = emit.call(_aten.index_select.default, x, dim, index)
    return made


def _to(emit: Emitter, x: Handle, dtype: torch.dtype) -> Handle:
    return x if x.spec.dtype is dtype else emit.call(_aten._to_copy.default, x, dtype=dtype)


def _ratio(emit: Emitter, size: Size, wanted: Size, scale: float | None, dtype: torch.dtype) -> Any:
    """Return the number of input positions for each position of the output."""
    if scale is not None and scale > 0:
        return 1.0 / scale
    pair = [_to(emit, emit.size(each), dtype) for each in (size, wanted)]
    return emit.call(_aten.div.Tensor, *pair)


def _corner_ratio(emit: Emitter, size: Size, wanted: Size, dtype: torch.dtype) -> Handle:
    """The same where the first and the last positions meet; 0 for one position alone, where nothing
    depends on it.
    """
    less = [
        _to(emit, emit.call(_aten.sub.Tensor, emit.size(each), 1), dtype) for each in (size, wanted)
    ]
    made: Handle = emit.call(
        _aten.div.Tensor, less[0], emit.call(_aten.clamp.default, less[1], 1.0)
    )
    return made


def _linear(emit: Emitter, share: Handle, next_one: Any) -> list[tuple[Any, Handle]]:
    """Return the weights of a position and of the next one, by how far they lie behind the position
    rounded down.
    """
    return [(0, emit.call(_aten.rsub.Scalar, share, 1.0)), (next_one, share)]


def _cubic(emit: Emitter, share: Handle) -> list[tuple[int, Handle]]:
    """The weights of the four neighbours, by Keys' cubic convolution."""

    def polynomial(x: Handle, *coefficients: float) -> Handle:
        found = emit.call(_aten.mul.Tensor, x, coefficients[0])
        for each in coefficients[1:-1]:
            found = emit.call(_aten.mul.Tensor, emit.call(_aten.add.Tensor, found, each), x)
        made: Handle = emit.call(_aten.add.Tensor, found, coefficients[-1])
        return made

    def near(x: Handle) -> Handle:
        return polynomial(x, _CUBIC + 2, -(_CUBIC + 3), 0.0, 1.0)

    def far(x: Handle) -> Handle:
        return polynomial(x, _CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC)

    other = emit.call(_aten.rsub.Scalar, share, 1.0)
    beyond = [emit.call(_aten.add.Tensor, each, 1.0) for each in (share, other)]
    return [(-1, far(beyond[0])), (0, near(share)), (1, near(other)), (2, far(beyond[1]))]


def adaptive_average(emit: Emitter, self: Padded, output_size: Sequence[Size]) -> Padded:
    """Averages over as many windows as wanted, each from the rounded down to the rounded up end of
    its share.
    """
    pooled, made = len(output_size), self
    if not any(map(is_padded, self.axes[-pooled:])):
        tensor = apply(emit, self, output_size)
        return Padded(tensor, (*self.axes[:-pooled], *(normal((size,)) for size in output_size)))
    for i, size in enumerate(output_size):
        if varies(size):
            raise Refuse("how many windows there are depends on the sizes", size)
        made = _averaged(emit, made, made.ndim - pooled + i, int(size))
    emit.repaired(
        f"mask: windows of {', '.join(map(str, self.axes[-pooled:]))}",
        *padded_sizes(self.axes[-pooled:]),
    )
    return made.with_(tensor=_to(emit, made.tensor, self.dtype))


def _averaged(emit: Emitter, x: Padded, dim: int, windows: int) -> Padded:
    """Averages along one dimension: ``(…, n, …) -> (…, windows, …)``, in float32 at least."""
    size, cap = prefix(x.axes[dim]), capacity_of(x.axes[dim])
    device = x.device
    number = emit.size(size)
    window = emit.call(_aten.arange.default, windows, dtype=torch.int64, device=device)
    start = emit.call(
        _aten.floor_divide.default, emit.call(_aten.mul.Tensor, window, number), windows
    )
    upper = emit.call(_aten.mul.Tensor, emit.call(_aten.add.Tensor, window, 1), number)
    end = emit.call(
        _aten.floor_divide.default, emit.call(_aten.add.Tensor, upper, windows - 1), windows
    )
    place = emit.call(_aten.view.default, positions(emit, cap, device), [1, cap])
    column = [emit.call(_aten.view.default, each, [windows, 1]) for each in (start, end)]
    inside = emit.call(
        _aten.bitwise_and.Tensor,
        emit.call(_aten.ge.Tensor, place, column[0]),
        emit.call(_aten.lt.Tensor, place, column[1]),
    )
    after = [1] * (x.ndim - dim - 1)
    mask = emit.call(_aten.view.default, inside, [windows, cap, *after])
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    spread = emit.call(_aten.unsqueeze.default, _to(emit, x.tensor, wide), dim)
    zero = emit.call(_aten.scalar_tensor.default, 0.0, dtype=wide, device=device)
    total = emit.call(
        _aten.sum.dim_IntList, emit.call(_aten.where.self, mask, spread, zero), [dim + 1]
    )
    count = emit.call(
        _aten.view.default, emit.call(_aten.sub.Tensor, end, start), [windows, *after]
    )
    tensor = emit.call(_aten.div.Tensor, total, count)
    axes: tuple[Axis, ...] = (*x.axes[:dim], normal((windows,)), *x.axes[dim + 1 :])
    return Padded(tensor, axes)
