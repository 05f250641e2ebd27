"""Fourier transforms. Untransformed dimensions come first, by falling input stride; the transformed
ones lie innermost.

Source: ``_exec_fft`` of ATen/native/mkl/SpectralOps.cpp, and of ATen/native/cuda/SpectralOps.cpp,
which transforms in other groups of dimensions; without MKL (PocketFFT) results are contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import dense
from meta_fns.core.checks import need_dtype, need_nonempty
from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Shape, Size, at_least_one, check, known, same
from meta_fns.core.spec import TensorSpec
from meta_fns.core.type_promotion import to_complex, to_real
from meta_fns.errors import ShapeError
from meta_fns.torch_internals import FROM_2_15

__all__: list[str] = []

_COMPLEX = (torch.complex32, torch.complex64, torch.complex128)
_REAL = (torch.float16, torch.float32, torch.float64)
_MKL: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]


def _sorted_dims(tensor: TensorSpec, dims: Sequence[int], *, keep_last: bool = False) -> list[int]:
    """The dimensions by falling stride (the last one staying if told)."""
    found = list(dims)
    movable = len(found) - keep_last
    found[:movable] = _by_stride(found[:movable], tensor)
    return found


def _by_stride(dims: Sequence[int], tensor: TensorSpec) -> list[int]:
    """A stable insertion sort by falling stride; asks only where the structure does not tell."""
    sizes, strides = tensor.sizes, tensor.strides
    found: list[int] = []
    for d in dims:
        at = len(found)
        while (
            at
            and dense.compare(strides[found[at - 1]], strides[d], sizes[found[at - 1]], sizes[d])
            < 0
        ):
            at -= 1
        found.insert(at, d)
    return found


def _partition(ndim: int, transformed: Sequence[int]) -> list[int]:
    """The other dimensions in the order in which std::partition leaves them: from both ends,
    swapping.
    """
    order = list(range(ndim))
    chosen = set(transformed)
    first, last = 0, ndim
    while True:
        while first != last and order[first] not in chosen:
            first += 1
        if first == last:
            break
        last -= 1
        while first != last and order[last] in chosen:
            last -= 1
        if first == last:
            break
        order[first], order[last] = order[last], order[first]
        first += 1
    return order[:first]


def _executed(
    self: TensorSpec, sizes: Shape, dims: Sequence[int], dtype: torch.dtype
) -> TensorSpec:
    """The output of one transform over ``dims``, innermost last, of these sizes."""
    if not _MKL and self.device.type == "cpu":
        return TensorSpec.contiguous(sizes, dtype, self.device)
    if self.device.type == "cpu":
        batch = [d for d in range(len(sizes)) if d not in dims]
        # MKL makes no plan for an empty batch.
        if not FROM_2_15:
            need_nonempty("self", self, batch)
        elif not all(sizes[d] >= 1 for d in batch):
            return TensorSpec.contiguous(sizes, dtype, self.device)
    batch = _by_stride(_partition(len(sizes), dims), self)
    strides: list[Size] = [0] * len(sizes)
    stride: Size = 1
    for d in reversed(dims):
        strides[d] = stride
        stride = stride * at_least_one(sizes[d])
    for d in reversed(batch):
        strides[d] = stride
        stride = stride * sizes[d]
    return TensorSpec(sizes, tuple(strides), 0, dtype, self.device)


def _need_dims(self: TensorSpec, dim: Sequence[int]) -> list[int]:
    found = [wrap_dim(d, len(self.sizes)) for d in dim]
    if not self.sizes and found:
        raise ShapeError("a 0-d tensor cannot be transformed")
    for d in found:
        size = self.sizes[d]
        if not known(size >= 1):
            check(size >= 1, f"dimension {d} of {self} must not be empty")
    return found


@rule("aten._fft_c2c.default")
def fft_c2c(self: TensorSpec, dim: Sequence[Size], normalization: int, forward: bool) -> TensorSpec:
    """A transform of complex numbers over ``dim``."""
    need_dtype("self", self, _COMPLEX)
    if not dim:
        strides = dense.like_strides(self.sizes, self.strides, None)
        return TensorSpec(self.sizes, strides, 0, self.dtype, self.device)
    dims = _sorted_dims(self, _need_dims(self, dim))
    made = self
    while len(dims) > _CUFFT_DIMS and self.device.type != "cpu":
        made, dims = (
            _executed(made, self.sizes, dims[-_CUFFT_DIMS:], self.dtype),
            dims[:-_CUFFT_DIMS],
        )
    return _executed(made, self.sizes, dims, self.dtype)


@rule("aten._fft_r2c.default")
def fft_r2c(self: TensorSpec, dim: Sequence[int], normalization: int, onesided: bool) -> TensorSpec:
    """A transform of real numbers over ``dim``; of the last one, half the frequencies if
    ``onesided``.
    """
    need_dtype("self", self, _REAL)
    dims = _need_dims(self, dim)
    last = dims[-1]
    sizes = list(self.sizes)
    if onesided:
        sizes[last] = sizes[last] // 2 + 1
    dtype = to_complex(self.dtype)
    if self.device.type != "cpu":
        return _cuda_r2c(self, tuple(sizes), dims, dtype)
    return _executed(self, tuple(sizes), _sorted_dims(self, dims, keep_last=True), dtype)


def _cuda_r2c(
    self: TensorSpec, sizes: Shape, dims: Sequence[int], dtype: torch.dtype
) -> TensorSpec:
    """``_fft_r2c`` by cuFFT: all dimensions at once, or the last one and then the others."""
    last = dims[-1]
    if self.storage_offset % 2 != 0:  # cuFFT reads pairs of numbers: a copy, ``last`` innermost
        others = [d for d in range(len(sizes)) if d != last]
        copied = TensorSpec.contiguous(
            tuple(self.sizes[d] for d in (*others, last)), self.dtype, self.device
        )
        strides = dict(zip((*others, last), copied.strides, strict=True))
        self = self.view(self.sizes, tuple(strides[d] for d in range(len(sizes))))
    if _at_once(dims):
        return _executed(self, sizes, dims, dtype)
    half = self.sizes[last] // 2 + 1
    onesided = (*sizes[:last], half, *sizes[last + 1 :])
    made, rest = _executed(self, onesided, [last], dtype), list(dims[:-1])
    while rest:
        rest = _by_stride(rest, made)
        made, rest = _executed(made, onesided, rest[-_CUFFT_DIMS:], dtype), rest[:-_CUFFT_DIMS]
    return made if half == sizes[last] else TensorSpec.contiguous(sizes, dtype, self.device)


_CUFFT_DIMS = 3
"""The most dimensions that cuFFT transforms at once (``cufft_max_ndim``)."""


def _at_once(dims: Sequence[int]) -> bool:
    """Return whether cuFFT transforms real numbers over all dimensions at once.

    Source: use_optimized_cufft_path in ATen/native/cuda/SpectralOps.cpp.
    """
    return len(dims) <= _CUFFT_DIMS and list(dims[:2]) != [0, 1]


@rule("aten._fft_c2r.default")
def fft_c2r(
    self: TensorSpec, dim: Sequence[int], normalization: int, last_dim_size: Size
) -> TensorSpec:
    """The inverse of ``_fft_r2c``: real numbers, ``last_dim_size`` of them in the last dimension of
    ``dim``.
    """
    need_dtype("self", self, _COMPLEX)
    dims = _need_dims(self, dim)
    if not known(last_dim_size >= 1):
        check(last_dim_size >= 1, lambda: f"last_dim_size must be positive, got {last_dim_size}")
    source, innermost = self, dims[-1:]
    if self.device.type != "cpu" and _at_once(dims):
        source, innermost = self.fresh(), dims  # cuFFT may write to its input: a copy of it
    elif len(dims) > 1:
        source = fft_c2c(self, dims[:-1], normalization, False)
    last = dims[-1]
    sizes = (*self.sizes[:last], last_dim_size, *self.sizes[last + 1 :])
    given = self.sizes[last]
    if not same(given, last_dim_size // 2 + 1):
        fits = (
            (given == last_dim_size // 2 + 1)
            | (given == last_dim_size)
            | (last_dim_size == given // 2 + 1)
        )
        check(fits, lambda: f"{given} frequencies do not fit last_dim_size {last_dim_size}")
    return _executed(source, sizes, innermost, to_real(self.dtype))
