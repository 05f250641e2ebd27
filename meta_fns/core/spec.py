"""TensorSpec: the metadata of a tensor, without its data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import torch

from meta_fns.core import layout as _layout
from meta_fns.core.sizes import Shape, Size, product, show

__all__ = ["CPU", "TensorSpec", "in_suggested_format"]

CPU = torch.device("cpu")


@attrs.frozen(eq=False)
class TensorSpec:
    """The sizes, strides (in elements), storage offset (in elements), dtype, device and layout of a
    tensor.

    Specs compare by identity: comparing symbolic sizes would record guards.  Use ``same`` on the
    sizes. ``canonical_known`` caches ``canonical()``; the maker of a contiguous spec may set it.
    """

    sizes: Shape
    strides: Shape
    storage_offset: Size = 0
    dtype: torch.dtype = torch.float32
    device: torch.device = CPU
    layout: torch.layout = torch.strided
    canonical_known: bool | None = attrs.field(default=None, repr=False)

    @staticmethod
    def of(tensor: torch.Tensor) -> TensorSpec:
        """Return the spec of a real (or fake) tensor."""
        if tensor.layout is not torch.strided:
            return TensorSpec(
                tuple(tensor.size()), (), 0, tensor.dtype, tensor.device, tensor.layout
            )
        return TensorSpec(
            tuple(tensor.size()),
            tensor.stride(),
            tensor.storage_offset(),
            tensor.dtype,
            tensor.device,
        )

    @staticmethod
    def contiguous(
        sizes: Iterable[Size], dtype: torch.dtype = torch.float32, device: torch.device = CPU
    ) -> TensorSpec:
        """Return the spec of a fresh contiguous tensor of these sizes."""
        sizes = tuple(sizes)
        return TensorSpec(
            sizes, _layout.contiguous_strides(sizes), 0, dtype, device, torch.strided, True
        )

    @property
    def dim(self) -> int:
        """The number of dimensions."""
        return len(self.sizes)

    def numel(self) -> Size:
        """Return the number of elements."""
        return product(self.sizes)

    def canonical(self) -> bool:
        """Return whether the strides are provably those of a fresh contiguous tensor.  No guard is
        recorded.

        Exact for plain ints.  (A tensor may be contiguous without: the stride of a dimension of
        size 1 is arbitrary.)
        """
        known = self.canonical_known
        if known is None:
            known = _layout.canonical(self.sizes, self.strides)
            object.__setattr__(self, "canonical_known", known)
        return known

    def is_contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> bool:
        """Return ``Tensor.is_contiguous``; a guard is recorded if the structure does not decide
        it.
        """
        if memory_format is torch.contiguous_format:
            return self.canonical() or _layout.is_contiguous(self.sizes, self.strides)
        return _layout.is_channels_last(self.sizes, self.strides, memory_format)

    def fresh(self, sizes: Shape | None = None, dtype: torch.dtype | None = None) -> TensorSpec:
        """Return the spec of a fresh contiguous tensor on the same device; sizes and dtype as here
        unless given.
        """
        if sizes is None:
            sizes = self.sizes
        if sizes is not self.sizes or not self.canonical():
            strides = _layout.contiguous_strides(sizes)
        elif (
            (dtype is None or dtype is self.dtype)
            and type(self.storage_offset) is int
            and self.storage_offset == 0
        ):
            return self
        else:
            strides = self.strides
        return TensorSpec(sizes, strides, 0, dtype or self.dtype, self.device, torch.strided, True)

    def view(self, sizes: Shape, strides: Shape, storage_offset: Size | None = None) -> TensorSpec:
        """Return the spec of a view of the same storage: other sizes and strides, and storage
        offset if given.
        """
        offset = self.storage_offset if storage_offset is None else storage_offset
        return TensorSpec(sizes, strides, offset, self.dtype, self.device, self.layout)

    def with_(self, **changes: Any) -> TensorSpec:
        """Return a copy with some fields changed (by field name)."""
        if "sizes" in changes or "strides" in changes:
            changes.setdefault("canonical_known", None)
        get = changes.get
        return TensorSpec(
            get("sizes", self.sizes),
            get("strides", self.strides),
            get("storage_offset", self.storage_offset),
            get("dtype", self.dtype),
            get("device", self.device),
            get("layout", self.layout),
            get("canonical_known", self.canonical_known),
        )

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return (
            f"{dtype}{show(self.sizes)} strides {show(self.strides)} offset "
            f"{self.storage_offset} on {self.device}"
        )


def in_suggested_format(
    spec: TensorSpec, sizes: Shape | None = None, *, keeps: bool = True
) -> TensorSpec:
    """Return a fresh spec (of ``sizes``) in the memory format that the strides of ``spec`` suggest.

    ``keeps=False``, for an op that keeps no format: contiguous.
    """
    if sizes is None:
        sizes = spec.sizes
    if not keeps or spec.canonical():
        return spec.fresh(sizes)
    found = _layout.suggested_format(spec.sizes, spec.strides)
    return TensorSpec(sizes, _layout.strides_of_format(sizes, found), 0, spec.dtype, spec.device)
