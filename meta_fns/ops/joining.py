"""Tensors made of tensors: cat, stack, repeat."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import layout
from meta_fns.core.dims import wrap_dim
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, check, known, same, show
from meta_fns.core.spec import TensorSpec
from meta_fns.core.type_promotion import result_type
from meta_fns.core.view_strides import view_strides
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.padding import joining as padded_joining
from meta_fns.padding import rearranging as padded_rearranging

__all__ = ["cat", "common_format", "repeat", "stack"]


@rule(
    "aten.cat.default",
    "aten.concat.default",
    "aten.concatenate.default",
    padding=padded_joining.cat,
)
def cat(tensors: Sequence[TensorSpec], dim: int = 0) -> TensorSpec:
    """The tensors side by side along ``dim``, where their sizes add; all other sizes must agree.

    A 1-d tensor among tensors of more dimensions must be empty and is passed over. Channels-last
    inputs (all of them) give a channels-last output, all else is contiguous.
    """
    if not tensors:
        raise ShapeError("cat needs at least one tensor")
    for i, tensor in enumerate(tensors):
        if not tensor.sizes:
            raise ShapeError(f"tensors[{i}] is 0-d and cannot be concatenated")
    counted = _without_legacy_empty(tensors)
    first = counted[0]
    if len(first.sizes) == 1 and all(same(t.sizes[0], 0) for t in counted):
        dim = 0
    at = wrap_dim(dim, len(first.sizes))
    total: Size = first.sizes[at]
    for i, tensor in enumerate(counted[1:]):
        if len(tensor.sizes) != len(first.sizes):
            raise ShapeError(
                f"tensors[{i + 1}] has sizes {show(tensor.sizes)}, another number than "
                f"{show(first.sizes)}"
            )
        for d, (mine, other) in enumerate(zip(first.sizes, tensor.sizes, strict=True)):
            if d == at:
                total = total + other
            elif mine is not other and not same(mine, other):
                check(
                    mine == other,
                    lambda: (
                        f"sizes differ outside dimension {at}: {[show(t.sizes) for t in counted]}"
                    ),
                )
    for tensor in tensors:
        if tensor.device != first.device:
            raise DtypeError(f"tensors are on two devices, {first.device} and {tensor.device}")
    dtype = first.dtype if all(t.dtype is first.dtype for t in tensors) else result_type(tensors)
    sizes = (*first.sizes[:at], total, *first.sizes[at + 1 :])
    strides = layout.strides_of_format(sizes, common_format(tensors))
    return TensorSpec(sizes, strides, 0, dtype, first.device)


def _without_legacy_empty(tensors: Sequence[TensorSpec]) -> list[TensorSpec]:
    most = max(len(t.sizes) for t in tensors)
    if most == 1:
        return list(tensors)
    for tensor in tensors:
        if len(tensor.sizes) == 1 and not same(tensor.sizes[0], 0):
            check(
                tensor.sizes[0] == 0,
                lambda: f"a 1-d tensor is not empty: {[show(t.sizes) for t in tensors]}",
            )
    return [t for t in tensors if len(t.sizes) > 1]


def common_format(tensors: Sequence[TensorSpec]) -> torch.memory_format:
    """The memory format of tensors joined: channels last if all of them suggest it."""
    common: torch.memory_format | None = None
    for tensor in tensors:
        if len(tensor.sizes) not in (4, 5):
            return torch.contiguous_format
        found = layout.suggested_format(tensor.sizes, tensor.strides)
        if found is torch.contiguous_format or (common is not None and found is not common):
            return torch.contiguous_format
        common = found
    return common or torch.contiguous_format


@rule("aten.stack.default", padding=padded_joining.stack)
def stack(tensors: Sequence[TensorSpec], dim: int = 0) -> TensorSpec:
    """The tensors, of equal sizes, along a new dimension."""
    if not tensors:
        raise ShapeError("stack needs at least one tensor")
    first = tensors[0]
    at = wrap_dim(dim, len(first.sizes) + 1)
    for tensor in tensors:
        if len(tensor.sizes) != len(first.sizes):
            raise ShapeError(f"sizes differ: {[show(t.sizes) for t in tensors]}")
        for mine, other in zip(first.sizes, tensor.sizes, strict=True):
            if mine is not other and not same(mine, other):
                check(mine == other, lambda: f"sizes differ: {[show(t.sizes) for t in tensors]}")
        if tensor.device != first.device:
            raise DtypeError(f"tensors are on two devices, {first.device} and {tensor.device}")
    dtype = first.dtype if all(t.dtype is first.dtype for t in tensors) else result_type(tensors)
    sizes = (*first.sizes[:at], len(tensors), *first.sizes[at:])
    if all(tensor.canonical() for tensor in tensors):
        return TensorSpec.contiguous(sizes, dtype, first.device)
    if at == len(first.sizes):
        added = [t.view((*t.sizes, 1), (*t.strides, 1)) for t in tensors]
        return TensorSpec(
            sizes, layout.strides_of_format(sizes, common_format(added)), 0, dtype, first.device
        )
    # Before the last dimension eager joins along an existing one, in the format of the tensors, and
    # takes that apart.
    found = common_format(tensors)
    if found is torch.contiguous_format:
        return TensorSpec.contiguous(sizes, dtype, first.device)
    joined = (*first.sizes[:at], len(tensors) * first.sizes[at], *first.sizes[at + 1 :])
    strides = view_strides(joined, layout.channels_last_strides(joined), sizes)
    assert strides is not None, "one dimension can always be split"
    return TensorSpec(sizes, strides, 0, dtype, first.device)


@rule("aten.repeat.default", padding=padded_rearranging.repeat)
def repeat(self: TensorSpec, repeats: Sequence[Size]) -> TensorSpec:
    """The tensor tiled, each size times its count; a count for each dimension, more for new leading
    ones.
    """
    lead = len(repeats) - len(self.sizes)
    if lead < 0:
        raise ShapeError(
            f"{len(repeats)} counts are fewer than the dimensions of {show(self.sizes)}"
        )
    sizes = [*repeats[:lead]]
    for size, count in zip(self.sizes, repeats[lead:], strict=True):
        sizes.append(size if type(count) is int and count == 1 else size * count)
    for size in sizes:
        if not known(size >= 0):
            check(size >= 0, lambda: f"counts must not be negative, got {show(repeats)}")
    return TensorSpec.contiguous(sizes, self.dtype, self.device)
