"""Views of parts: slices, elements, pieces, diagonals and windows."""

from __future__ import annotations

from collections.abc import Sequence

from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import rule
from meta_fns.core.sizes import (
    Cond,
    Size,
    ceil_div,
    check,
    clamp_index,
    known,
    only_at_run_time,
    same,
    sym_max,
    sym_min,
)
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import ShapeError, UnsupportedOp
from meta_fns.padding import slicing as padded_slicing
from meta_fns.padding.rearranging import diagonal as padded_diagonal

__all__ = [
    "count_of",
    "diagonal",
    "select",
    "slice_dim",
    "slice_tensor",
    "split",
    "split_with_sizes",
]


def count_of(size: Size, what: str) -> int:
    """A number of outputs, as an int: a symbolic one is specialised (guarded) by ``int()``.

    Raises: UnsupportedOp if the size cannot be made an int.
    """
    if type(size) is int:
        return size
    try:
        return int(size)
    except TypeError as error:
        raise UnsupportedOp(f"{what}: the number of outputs, {size}, must be known") from error


def slice_dim(size: Size, start: Size | None, end: Size | None, step: Size) -> tuple[Size, Size]:
    """First index and number of elements of ``start:end:step`` over ``size``, clamped as eager
    clamps.

    In the simplest provable form: ``:s`` with ``s <= size`` has s elements, ``k:`` has
    ``max(size - k, 0)``, ``-k:`` has ``min(size, k)``.
    """
    if type(step) is int and step < 1:
        raise ShapeError(f"slice step must be positive, got {step}")
    first = 0 if start is None else clamp_index(start, size)
    last = size if end is None else clamp_index(end, size)
    if type(first) is int and first == 0:
        count = last
    elif last is size and type(start) is int:
        if start < 0:
            count = -start if known(size >= -start) else sym_min(size, -start)
        else:
            count = _at_least_zero(size - start)
    else:
        count = _at_least_zero(last - first)
    if type(step) is int and step == 1:
        return first, count
    return first, ceil_div(count, step)


def _at_least_zero(n: Size) -> Size:
    if type(n) is int:
        return n if n > 0 else 0
    return n if known(n >= 0) else sym_max(n, 0)


@rule("aten.slice.Tensor", name="slice", padding=padded_slicing.slice_of)
def slice_tensor(
    self: TensorSpec,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> TensorSpec:
    """``self[..., start:end:step, ...]`` along ``dim``."""
    if not self.sizes:
        raise ShapeError("a 0-d tensor cannot be sliced")
    at = wrap_dim(dim, len(self.sizes))
    size, stride = self.sizes[at], self.strides[at]
    first, count = slice_dim(size, start, end, step)
    whole = type(step) is int and step == 1
    if whole and count is size and type(first) is int and first == 0:
        return self
    sizes = (*self.sizes[:at], count, *self.sizes[at + 1 :])
    strides = (
        self.strides if whole else (*self.strides[:at], stride * step, *self.strides[at + 1 :])
    )
    offset = (
        self.storage_offset
        if type(first) is int and first == 0
        else self.storage_offset + first * stride
    )
    return self.view(sizes, strides, offset)


def _placed(index: Size, size: Size) -> tuple[Size, Cond]:
    """An index counted from the front, whatever its sign, and that it is inside; asks for a sign
    that sizes tell.
    """
    if type(index) is int:
        return (index, index < size) if index >= 0 else (index + size, size >= -index)
    negative: Cond = False if known(index >= 0) else index < 0
    if only_at_run_time(negative):
        return negative.sym_ite(index + size, index), (index >= -size) & (index < size)
    return (index + size, index >= -size) if negative else (index, index < size)


@rule("aten.select.int", padding=padded_slicing.select)
def select(self: TensorSpec, dim: int, index: Size) -> TensorSpec:
    """``self[..., index, ...]`` along ``dim``, which disappears."""
    if not self.sizes:
        raise ShapeError("select does not apply to a 0-d tensor")
    at = wrap_dim(dim, len(self.sizes))
    size, stride = self.sizes[at], self.strides[at]
    position, in_range = _placed(index, size)
    if in_range is not True:
        check(in_range, lambda: f"index {index} is out of range for dimension {at} of size {size}")
    sizes = self.sizes[:at] + self.sizes[at + 1 :]
    strides = self.strides[:at] + self.strides[at + 1 :]
    return self.view(sizes, strides, self.storage_offset + position * stride)


def _piece(self: TensorSpec, at: int, start: Size, size: Size) -> TensorSpec:
    offset = self.storage_offset + start * self.strides[at]
    return self.view((*self.sizes[:at], size, *self.sizes[at + 1 :]), self.strides, offset)


@rule("aten.split.Tensor", padding=padded_slicing.pieces)
def split(self: TensorSpec, split_size: Size, dim: int = 0) -> list[TensorSpec]:
    """Views of ``split_size`` along ``dim``, the last one smaller if it must be.

    How many there are must be known (or is guarded).
    """
    if not self.sizes:
        raise ShapeError("a 0-d tensor cannot be split")
    at = wrap_dim(dim, len(self.sizes))
    size = self.sizes[at]
    check(split_size >= 0, lambda: f"split size must not be negative, got {split_size}")
    if type(split_size) is int and split_size == 0:
        check(size == 0, lambda: f"a split size of 0 needs a dimension of size 0, got {size}")
        return [self]
    if same(split_size, size):
        return [self]
    count = max(count_of(ceil_div(size, split_size), "split"), 1)
    pieces = [_piece(self, at, i * split_size, split_size) for i in range(count - 1)]
    start = (count - 1) * split_size
    return [*pieces, _piece(self, at, start, size - start)]


@rule("aten.split_with_sizes.default", padding=padded_slicing.pieces)
def split_with_sizes(
    self: TensorSpec, split_sizes: Sequence[Size], dim: int = 0
) -> list[TensorSpec]:
    """Views of the given sizes along ``dim``, which must add up."""
    if not self.sizes:
        raise ShapeError("a 0-d tensor cannot be split")
    at = wrap_dim(dim, len(self.sizes))
    size = self.sizes[at]
    pieces = []
    start: Size = 0
    for piece in split_sizes:
        check(piece >= 0, "split sizes must not be negative")
        pieces.append(_piece(self, at, start, piece))
        start = start + piece
    if not same(start, size):
        check(
            start == size, lambda: f"split sizes add up to {start}, dimension {at} has size {size}"
        )
    return pieces


@rule("aten.unbind.int", padding=padded_slicing.unbind)
def unbind(self: TensorSpec, dim: int = 0) -> list[TensorSpec]:
    """Every ``select`` along ``dim``; its size must be known (or is guarded)."""
    if not self.sizes:
        raise ShapeError("unbind does not apply to a 0-d tensor")
    at = wrap_dim(dim, len(self.sizes))
    sizes = self.sizes[:at] + self.sizes[at + 1 :]
    strides = self.strides[:at] + self.strides[at + 1 :]
    step = self.strides[at]
    return [
        self.view(sizes, strides, self.storage_offset + i * step)
        for i in range(count_of(self.sizes[at], "unbind"))
    ]


@rule("aten.diagonal.default", padding=padded_diagonal)
def diagonal(self: TensorSpec, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorSpec:
    """The diagonal of two dimensions, as the last one."""
    n = len(self.sizes)
    a, b = wrap_dim(dim1, n), wrap_dim(dim2, n)
    if a == b:
        raise ShapeError(f"diagonal needs two dimensions, got {dim1} and {dim2}")
    rows, columns = self.sizes[a], self.sizes[b]
    if offset >= 0:
        columns = columns - offset
    else:
        rows = rows + offset
    size = _at_least_zero(rows if rows is columns else sym_min(rows, columns))
    moved = offset * self.strides[b] if offset >= 0 else -offset * self.strides[a]
    # an empty diagonal begins where the tensor does
    start = self.storage_offset + (moved if known(size > 0) else moved * sym_min(size, 1))
    keep = [i for i in range(n) if i not in (a, b)]
    sizes = (*(self.sizes[i] for i in keep), size)
    return self.view(
        sizes, (*(self.strides[i] for i in keep), self.strides[a] + self.strides[b]), start
    )


@rule("aten.unfold.default", padding=padded_slicing.windows)
def unfold(self: TensorSpec, dimension: int, size: Size, step: Size) -> TensorSpec:
    """Windows of ``size`` every ``step`` along a dimension, as the last dimension."""
    at = wrap_dim(dimension, len(self.sizes))
    full = self.sizes[at] if self.sizes else 1
    stride = self.strides[at] if self.sizes else 1
    check(size >= 0, lambda: f"window size {size} is negative")
    check(size <= full, lambda: f"window size {size} is larger than dimension {at} of size {full}")
    check(step > 0, lambda: f"step {step} is not positive")
    if not self.sizes:
        return self.view((size,), (1,))
    sizes = (*self.sizes[:at], (full - size) // step + 1, *self.sizes[at + 1 :], size)
    strides = (*self.strides[:at], stride * step, *self.strides[at + 1 :], stride)
    return self.view(sizes, strides)
