"""Bags of embeddings, segments of a tensor, and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.checks import (
    FLOATS,
    INDICES,
    need_contiguous,
    need_dtype,
    need_equal,
    need_nonempty,
    need_rank,
    need_same,
    need_sizes,
)
from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, check, known, same, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.ops.reductions import reduce_to, reduced_dims

__all__: list[str] = []

Four = tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec]
SUM, MEAN, MAX = 0, 1, 2


def _bag_checks(
    weight: TensorSpec,
    indices: TensorSpec,
    offsets: TensorSpec,
    mode: int,
    per_sample: TensorSpec | None,
) -> None:
    need_rank("weight", weight, 2)
    need_rank("indices", indices, 1)
    need_rank("offsets", offsets, 1)
    need_dtype("weight", weight, FLOATS)
    need_dtype("indices", indices, INDICES)
    need_dtype("offsets", offsets, INDICES)
    if per_sample is not None:
        if mode != SUM:
            raise ShapeError("per_sample_weights are for mode sum only")
        need_rank("per_sample_weights", per_sample, 1)
        if per_sample.dtype is not weight.dtype:
            raise DtypeError(
                f"per_sample_weights are of {per_sample.dtype}, weight of {weight.dtype}"
            )
        need_equal(per_sample.sizes[0], indices.sizes[0], "per_sample_weights and indices")


def _bags(
    weight: TensorSpec,
    indices: TensorSpec,
    offsets: TensorSpec,
    mode: int,
    per_sample: TensorSpec | None,
    include_last_offset: bool,
    padding_idx: int,
    forward_only: bool,
) -> Four:
    """The bags; for the gradient the bag of each index, the size of each bag, the index that was
    largest.
    """
    _bag_checks(weight, indices, offsets, mode, per_sample)
    if not known(weight.sizes[0] >= 1):
        check(
            (indices.sizes[0] == 0) | (weight.sizes[0] >= 1),
            "an index is out of range: weight has no rows",
        )
    bags = offsets.sizes[0]
    if include_last_offset:
        check(bags >= 1, "offsets must hold at least the last one")
        bags = bags - 1
    width = weight.sizes[1]
    dtype = offsets.dtype if offsets.dtype is indices.dtype else torch.int64
    output = TensorSpec.contiguous((bags, width), weight.dtype, weight.device)

    def integers(*sizes: Size) -> TensorSpec:
        return TensorSpec.contiguous(sizes, dtype, weight.device)

    if weight.device.type != "cpu":
        largest = integers(bags, width) if mode == MAX else integers(0)
        return output, integers(indices.sizes[0]), integers(offsets.sizes[0]), largest
    fast = weight.dtype is not torch.float64 and padding_idx < 0 and same(weight.strides[1], 1)
    fast = fast and (per_sample is None or same(per_sample.strides[0], 1))
    of_index = integers(0) if mode == SUM and fast else integers(indices.sizes[0])
    counts = integers(offsets.sizes[0] if mode == SUM and forward_only else bags)
    return output, of_index, counts, integers(bags, width) if mode == MAX else counts


@rule("aten._embedding_bag.default")
def embedding_bag(
    weight: TensorSpec,
    indices: TensorSpec,
    offsets: TensorSpec,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: TensorSpec | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Four:
    """Rows of ``weight`` summed, averaged or maximised by bag:
    ``(v, h), (n,), (bags,) -> (bags, h)``.
    """
    return _bags(
        weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx, False
    )


@rule("aten._embedding_bag_forward_only.default")
def embedding_bag_forward_only(
    weight: TensorSpec,
    indices: TensorSpec,
    offsets: TensorSpec,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: TensorSpec | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Four:
    """The same where no gradient is wanted."""
    return _bags(
        weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx, True
    )


@rule("aten._embedding_bag_backward.default")
def embedding_bag_backward(
    grad: TensorSpec,
    indices: TensorSpec,
    offsets: TensorSpec,
    offset2bag: TensorSpec,
    bag_size: TensorSpec,
    maximum_indices: TensorSpec,
    num_weights: Size,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: TensorSpec | None,
    padding_idx: int = -1,
) -> TensorSpec:
    """The gradient of the weight: ``(num_weights, h)``."""
    need_rank("indices", indices, 1)
    need_rank("offsets", offsets, 1)
    need_rank("grad", grad, 2)
    need_dtype("grad", grad, FLOATS)
    sizes = (num_weights, grad.sizes[1])
    if sparse:
        return TensorSpec(sizes, (), 0, grad.dtype, grad.device, torch.sparse_coo)
    return TensorSpec.contiguous(sizes, grad.dtype, grad.device)


@rule("aten._embedding_bag_dense_backward.default")
def embedding_bag_dense_backward(
    grad: TensorSpec,
    indices: TensorSpec,
    offset2bag: TensorSpec,
    bag_size: TensorSpec,
    maximum_indices: TensorSpec,
    num_weights: Size,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: TensorSpec | None,
    padding_idx: int = -1,
) -> TensorSpec:
    """The gradient of the weight: ``(num_weights, h)``."""
    need_rank("grad", grad, 2)
    return TensorSpec.contiguous((num_weights, grad.sizes[1]), grad.dtype, grad.device)


@rule("aten._embedding_bag_per_sample_weights_backward.default")
def embedding_bag_per_sample_weights_backward(
    grad: TensorSpec,
    weight: TensorSpec,
    indices: TensorSpec,
    offsets: TensorSpec,
    offset2bag: TensorSpec,
    mode: int,
    padding_idx: int = -1,
) -> TensorSpec:
    """The gradient of the weights of the samples: one an index."""
    if mode != SUM:
        raise ShapeError("per_sample_weights are for mode sum only")
    need_rank("grad", grad, 2)
    need_rank("indices", indices, 1)
    need_rank("weight", weight, 2)
    need_equal(weight.sizes[1], grad.sizes[1], "the widths of weight and grad")
    need_contiguous("indices", indices)
    need_contiguous("offset2bag", offset2bag)
    if grad.dtype is not weight.dtype:
        raise DtypeError(f"grad is of {grad.dtype}, weight of {weight.dtype}")
    need_dtype("grad", grad, FLOATS)
    return TensorSpec.contiguous(indices.sizes, grad.dtype, grad.device)


# --- segments -------------------------------------------------------------------------------------


def _segments(
    data: TensorSpec, reduce: str, lengths: TensorSpec | None, offsets: TensorSpec | None, axis: int
) -> Size:
    at = wrap_dim(axis, len(data.sizes))
    if reduce not in ("max", "mean", "min", "sum", "prod"):
        raise ShapeError(f"unknown reduction {reduce!r}")
    given = offsets if lengths is None else lengths
    if given is None:
        raise ShapeError("lengths or offsets must be given")
    if len(given.sizes) != at + 1:
        raise ShapeError(f"segments {show(given.sizes)} must have {at + 1} dimensions")
    for a, b in zip(given.sizes[:-1], data.sizes[:at], strict=True):
        need_equal(a, b, "the batches of data and segments")
    return given.sizes[-1] if lengths is not None else given.sizes[-1] - 1


@rule("aten.segment_reduce.default")
def segment_reduce(
    data: TensorSpec,
    reduce: str,
    *,
    lengths: TensorSpec | None = None,
    indices: TensorSpec | None = None,
    offsets: TensorSpec | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> TensorSpec:
    """A dimension reduced segment by segment, contiguous."""
    count = _segments(data, reduce, lengths, offsets, axis)
    need_dtype("data", data, FLOATS)
    at = wrap_dim(axis, len(data.sizes))
    return data.fresh((*data.sizes[:at], count, *data.sizes[at + 1 :]))


@rule("aten._segment_reduce_backward.default")
def segment_reduce_backward(
    grad: TensorSpec,
    output: TensorSpec,
    data: TensorSpec,
    reduce: str,
    *,
    lengths: TensorSpec | None = None,
    offsets: TensorSpec | None = None,
    axis: int = 0,
    initial: Any = None,
) -> TensorSpec:
    """The gradient of segment_reduce in data, contiguous."""
    need_same("grad", grad, "data", data)
    _segments(data, reduce, lengths, offsets, axis)
    need_dtype("data", data, FLOATS)
    return TensorSpec.contiguous(data.sizes, grad.dtype, grad.device)


@rule("aten.hash_tensor.default")
def hash_tensor(
    self: TensorSpec, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0
) -> TensorSpec:
    """A hash over ``dim``."""
    if self.dtype.is_complex:
        raise DtypeError(f"not implemented for {self.dtype}")
    if self.sizes:
        need_nonempty("self", self, sorted(reduced_dims(dim, len(self.sizes))))
    return reduce_to(self, dim, keepdim, torch.uint64)


# --- histograms -----------------------------------------------------------------------------------


def _vector(self: TensorSpec, size: Size) -> TensorSpec:
    return TensorSpec.contiguous((size,), self.dtype, self.device)


def _histogram_checks(self: TensorSpec, weight: TensorSpec | None, sizes: Sequence[Size]) -> None:
    need_dtype("self", self, FLOATS)
    if weight is not None:
        if weight.dtype is not self.dtype:
            raise DtypeError(f"weight is of {weight.dtype}, self of {self.dtype}")
        need_sizes("weight", weight, sizes)


def _need_bins(bins: Sequence[int]) -> None:
    for count in bins:
        if count < 1:
            raise ShapeError(f"each number of bins must be positive, got {list(bins)}")


@rule("aten.histogram.bin_ct")
def histogram(
    self: TensorSpec,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,  # noqa: A002 - name of the schema
    weight: TensorSpec | None = None,
    density: bool = False,
) -> tuple[TensorSpec, TensorSpec]:
    """Counts in ``bins`` bins, and their edges."""
    _histogram_checks(self, weight, self.sizes)
    _need_bins([bins])
    return _vector(self, bins), _vector(self, bins + 1)


@rule("aten.histogram.bins_tensor")
def histogram_bins(
    self: TensorSpec, bins: TensorSpec, *, weight: TensorSpec | None = None, density: bool = False
) -> tuple[TensorSpec, TensorSpec]:
    """Counts between the given edges, and the edges."""
    _histogram_checks(self, weight, self.sizes)
    need_rank("bins", bins, 1)
    if bins.dtype is not self.dtype:
        raise DtypeError(f"bins are of {bins.dtype}, self of {self.dtype}")
    check(bins.sizes[0] >= 2, "bins need at least two edges")
    return _vector(self, bins.sizes[0] - 1), _vector(self, bins.sizes[0])


def _histogramdd_checks(self: TensorSpec, weight: TensorSpec | None, count: int) -> None:
    if len(self.sizes) < 2:
        raise ShapeError(f"self must have at least 2 dimensions, got {show(self.sizes)}")
    fits = self.sizes[-1] == count
    if not known(fits):
        check(
            fits,
            lambda: f"bins for {count} dimensions, the last of self is of size {self.sizes[-1]}",
        )
    _histogram_checks(self, weight, self.sizes[:-1])


@rule("aten._histogramdd_bin_edges.default")
def histogramdd_bin_edges(
    self: TensorSpec,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,  # noqa: A002 - name of the schema
    weight: TensorSpec | None = None,
    density: bool = False,
) -> list[TensorSpec]:
    """The edges of the bins of each dimension."""
    _histogramdd_checks(self, None, len(bins))
    _need_bins(bins)
    return [_vector(self, count + 1) for count in bins]


@rule("aten._histogramdd_from_bin_cts.default")
def histogramdd_from_bin_cts(
    self: TensorSpec,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,  # noqa: A002 - name of the schema
    weight: TensorSpec | None = None,
    density: bool = False,
) -> TensorSpec:
    """Counts in bins of several dimensions."""
    _histogramdd_checks(self, weight, len(bins))
    _need_bins(bins)
    return self.fresh(tuple(bins))


@rule("aten._histogramdd_from_bin_tensors.default")
def histogramdd_from_bin_tensors(
    self: TensorSpec,
    bins: Sequence[TensorSpec],
    *,
    weight: TensorSpec | None = None,
    density: bool = False,
) -> TensorSpec:
    """Counts between the edges given for several dimensions."""
    _histogramdd_checks(self, weight, len(bins))
    for each in bins:
        need_rank("bins", each, 1)
        if each.dtype is not self.dtype:
            raise DtypeError(f"bins are of {each.dtype}, self of {self.dtype}")
        check(each.sizes[0] >= 2, "bins need at least two edges")
    return self.fresh(tuple(each.sizes[0] - 1 for each in bins))
