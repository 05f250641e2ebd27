"""Reading by index: embedding, gather, index_select, advanced indexing."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import dense
from meta_fns.core.broadcasting import broadcast, expand
from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import Context, rule
from meta_fns.core.sizes import Shape, Size, check, empty, known, product, same, show, static
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import output_strides
from meta_fns.core.view_strides import view_strides
from meta_fns.errors import DtypeError, ShapeError, UnsupportedOp
from meta_fns.padding import indexing as padded_indexing

__all__ = ["IndexPlan", "embedding", "gather", "index", "index_plan"]

_INTS = (torch.int64, torch.int32)
_MASKS = (torch.bool, torch.uint8)


def need_index_dtype(name: str, spec: TensorSpec) -> None:
    """Raise DtypeError unless the argument is an int64 or int32 tensor."""
    if spec.dtype not in _INTS:
        raise DtypeError(f"{name} must be int64 or int32, got {spec.dtype}")


def _need_rows(weight: TensorSpec, indices: TensorSpec) -> None:
    """Require a matrix, and indices of its rows."""
    if len(weight.sizes) != 2:
        raise ShapeError(f"weight must have 2 dimensions, got {show(weight.sizes)}")
    need_index_dtype("indices", indices)
    if not empty(indices.sizes) and not known(weight.sizes[0] >= 1):
        check(
            (product(indices.sizes) == 0) | (weight.sizes[0] >= 1),
            "an index is out of range: weight has no rows",
        )


@rule("aten.embedding.default", padding=padded_indexing.embedding)
def embedding(
    weight: TensorSpec,
    indices: TensorSpec,
    padding_idx: Size = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> TensorSpec:
    """A row of ``weight`` for each index: ``(v, h)[(*, )] -> (*, h)``."""
    _need_rows(weight, indices)
    return TensorSpec.contiguous((*indices.sizes, weight.sizes[1]), weight.dtype, weight.device)


@rule("aten.embedding_renorm_.default")
def embedding_renorm_(
    weight: TensorSpec, indices: TensorSpec, max_norm: float, norm_type: float
) -> TensorSpec:
    """Scales the rows of ``weight`` that are indexed, in place, to a norm of at most
    ``max_norm``.
    """
    if not (weight.dtype.is_floating_point or weight.dtype.is_complex):
        check(
            product(indices.sizes) == 0,
            lambda: f"weight must be floating point or complex, got {weight.dtype}",
        )
    _need_rows(weight, indices)
    return weight


@rule("aten.index_select.default", padding=padded_indexing.index_select)
def index_select(self: TensorSpec, dim: int, index: TensorSpec) -> TensorSpec:
    """The slices along ``dim`` at the given indices (a vector, or a 0-d tensor for one of them)."""
    if len(index.sizes) > 1:
        raise ShapeError(f"index must be a vector, got {show(index.sizes)}")
    need_index_dtype("index", index)
    at = wrap_dim(dim, len(self.sizes))
    if not self.sizes:
        if index.sizes:
            check(
                index.sizes[0] == 1,
                lambda: f"index into a 0-d tensor must be of size 1, got {show(index.sizes)}",
            )
        return TensorSpec((), (), 0, self.dtype, self.device, torch.strided, True)
    size = index.sizes[0] if index.sizes else 1
    if not known(self.sizes[at] >= 1):
        check(
            (self.sizes[at] >= 1) | (size == 0),
            lambda: f"cannot index dimension {at} of {show(self.sizes)}, size 0",
        )
    return TensorSpec.contiguous(
        (*self.sizes[:at], size, *self.sizes[at + 1 :]), self.dtype, self.device
    )


@rule("aten.gather.default", padding=padded_indexing.gather)
def gather(
    self: TensorSpec, dim: int, index: TensorSpec, *, sparse_grad: bool = False
) -> TensorSpec:
    """``self`` along ``dim`` at the positions in ``index``, whose sizes the result has.

    Elsewhere than along ``dim`` the index may not be larger than ``self``.
    """
    at = wrap_dim(dim, len(self.sizes))
    result = TensorSpec.contiguous(index.sizes, self.dtype, self.device)
    if empty(index.sizes):
        return result
    need_index_dtype("index", index)
    if max(len(self.sizes), 1) != max(len(index.sizes), 1):
        raise ShapeError(
            f"index {show(index.sizes)} must have as many dimensions as self {show(self.sizes)}"
        )
    if self.sizes and index.sizes:
        for d, (size, full) in enumerate(zip(index.sizes, self.sizes, strict=True)):
            if d != at and size is not full and not same(size, full):
                fits = size <= full
                if not known(fits):
                    if not static(index.sizes):
                        fits = fits | (product(index.sizes) == 0)
                    check(
                        fits,
                        lambda: (
                            f"index {show(index.sizes)} is larger than self {show(self.sizes)} "
                            f"outside dimension {at}"
                        ),
                    )
        if not known(self.sizes[at] >= 1):
            check(
                (product(index.sizes) == 0) | (self.sizes[at] >= 1),
                lambda: f"index is out of range for dimension {at} of {show(self.sizes)}",
            )
    return result


class IndexPlan:
    """The result of advanced indexing:

    ``before`` kept dimensions, the broadcast index sizes, the other kept dimensions.

    ``source``: sizes and strides of ``self`` in the order of the result, with the index sizes (of
    stride 0) in place of the indexed dimensions.
    """

    __slots__ = ("before", "index_sizes", "indices", "sizes", "strides")

    def __init__(
        self,
        sizes: Shape,
        strides: Shape,
        before: int,
        index_sizes: Shape,
        indices: list[TensorSpec],
    ) -> None:
        self.sizes = sizes
        self.strides = strides
        self.before = before
        self.index_sizes = index_sizes
        self.indices = indices

    def operands(self) -> list[tuple[Shape, Shape]]:
        """Sizes and strides of the iterator's operands: the restrided source, then the indices."""
        after = len(self.sizes) - self.before - len(self.index_sizes)
        found = [(self.sizes, self.strides)]
        for index in self.indices:
            # Eager expands them, makes them int64, and reshapes them: dimensions of size 1 before
            # and after.
            whole, strides_of_whole = expand(index.sizes, index.strides, self.index_sizes)
            if index.dtype is torch.int32:
                strides_of_whole = dense.like_strides(whole, strides_of_whole, None)
            sizes = (*((1,) * self.before), *whole, *((1,) * after))
            strides = view_strides(whole, strides_of_whole, sizes)
            assert strides is not None
            found.append((sizes, strides))
        return found


def index_plan(ctx: Context, self: TensorSpec, indices: Sequence[TensorSpec | None]) -> IndexPlan:
    """Work out advanced indexing of ``self``: masks become as many unknown-length vectors as they
    have dimensions.

    Raises: ShapeError if the indices do not fit or do not broadcast; DataDependentOutput for masks
    without a context.
    """
    if not indices:
        raise ShapeError("at least one index must be given")
    expanded: list[TensorSpec | None] = []
    masked: set[int] = set()  # dimensions that a mask indexes, never out of bounds
    for item in indices:
        if item is None:
            expanded.append(None)
        elif item.dtype in _MASKS:
            masked.update(range(len(expanded), len(expanded) + len(item.sizes)))
            expanded.extend(_mask_vectors(ctx, self, item, len(expanded)))
        else:
            need_index_dtype("an index", item)
            expanded.append(item)
    if len(expanded) > len(self.sizes):
        raise ShapeError(
            f"{len(expanded)} indices are too many for a tensor of sizes {show(self.sizes)}"
        )
    given = [i for i, item in enumerate(expanded) if item is not None]
    tensors = [item for item in expanded if item is not None]
    if not tensors:
        if not empty(self.sizes):
            raise ShapeError("at least one index must be a tensor")
        return IndexPlan(self.sizes, self.strides, len(self.sizes), (), [])
    try:
        index_sizes = broadcast(*[t.sizes for t in tensors])
    except ShapeError as error:
        raise ShapeError(f"indices do not broadcast: {[show(t.sizes) for t in tensors]}") from error
    kept = [i for i in range(len(self.sizes)) if i >= len(expanded) or expanded[i] is None]
    adjacent = given[-1] - given[0] + 1 == len(given)
    before = given[0] if adjacent else 0
    if not empty(index_sizes):
        for i in given:
            size = self.sizes[i]
            if i not in masked and not known(size >= 1):
                check(
                    (size != 0) | (product(index_sizes) == 0),
                    lambda: (
                        f"index is out of bounds for a dimension of size 0, in {show(self.sizes)}"
                    ),
                )
    head, tail = kept[:before], kept[before:]
    sizes = (*(self.sizes[i] for i in head), *index_sizes, *(self.sizes[i] for i in tail))
    zeros = (0,) * len(index_sizes)
    strides = (*(self.strides[i] for i in head), *zeros, *(self.strides[i] for i in tail))
    return IndexPlan(sizes, strides, before, index_sizes, tensors)


def _mask_vectors(ctx: Context, self: TensorSpec, mask: TensorSpec, at: int) -> list[TensorSpec]:
    if not mask.sizes:
        raise UnsupportedOp("indexing by a 0-d mask")
    if at + len(mask.sizes) > len(self.sizes):
        raise ShapeError(
            f"mask {show(mask.sizes)} has more dimensions than are left of {show(self.sizes)}"
        )
    for size, full in zip(mask.sizes, self.sizes[at:], strict=False):
        if size is not full and not same(size, full):
            check(
                size == full,
                lambda: (
                    f"mask {show(mask.sizes)} does not fit {show(self.sizes)} at dimension {at}"
                ),
            )
    count = ctx.count_of(mask, 0, mask.numel())
    # Columns of nonzero()'s result.
    step = len(mask.sizes)
    return [TensorSpec((count,), (step,), i, torch.int64, mask.device) for i in range(step)]


@rule(
    "aten.index.Tensor",
    "aten._unsafe_index.Tensor",
    data_dependent=True,
    padding=padded_indexing.index,
)
def index(ctx: Context, self: TensorSpec, indices: Sequence[TensorSpec | None]) -> TensorSpec:
    """``self[indices]``: index sizes broadcast and stand where the first index stood, or in front
    if the indices are not adjacent.

    A mask selects an unknown number of elements, ``0 .. mask.numel()``.
    """
    plan = index_plan(ctx, self, indices)
    sizes = plan.sizes
    # Kept dimensions keep their order and so do those of the indices; where the two meet, the
    # iterator's sort decides.
    simple = len(plan.index_sizes) <= 1 or not plan.before
    if (
        simple
        and not static(sizes)
        and self.canonical()
        and all(t.canonical() for t in plan.indices)
    ):
        return TensorSpec.contiguous(sizes, self.dtype, self.device)
    return TensorSpec(sizes, output_strides(sizes, plan.operands()), 0, self.dtype, self.device)
