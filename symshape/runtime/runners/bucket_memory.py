"""The memory of buckets: what inputs are copied to, and what their programs are run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch

__all__ = ["Memory", "Share", "aligned_bytes", "unchanged"]

Share = Callable[[int], torch.Tensor]
"""So many bytes, or more, which others use, too, before and after: a flat ``uint8`` tensor."""
_ALIGNMENT = 512


def aligned_bytes(sizes: Sequence[int], dtype: torch.dtype) -> int:
    """The bytes of a buffer, with what is left before the next one begins.

    >>> aligned_bytes((3, 5), torch.float32), aligned_bytes((0,), torch.int64)
    (512, 0)
    """
    return -(-prod(sizes) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT


class Memory:
    """Where a bucket's program finds its inputs: in buffers of its own, or where the caller has them.

    Args:
        specs: of the inputs.
        sizes: the true sizes, which the program takes besides.
        longer: by the place of an input: the dimension in which there is memory behind its buffer, and for how much.

    Attributes:
        arguments: what the program is run on; None for what is not there yet.
        buffers: by place, what inputs are copied to.
        longer: as given.
        shared: the bytes that buffers share with those of other buckets; None where they share none.
    """

    def __init__(
        self, specs: Sequence[Any], sizes: Sequence[torch.Tensor], longer: Mapping[int, tuple[int, int]]
    ) -> None:
        self._specs = specs
        self._whole: dict[int, torch.Tensor] = {}  # the buffers, with what is behind them
        self.longer = longer
        self.buffers: dict[int, torch.Tensor] = {}
        self.arguments: list[Any] = [None] * len(specs) + [*sizes]
        self.shared: torch.Tensor | None = None

    def allocate_all(self, places: Sequence[int], share: Share | None) -> Memory:
        """Makes the buffers of some inputs, in memory that is shared if there is any; itself."""
        needed = [aligned_bytes(self._sizes(place), self._specs[place].dtype) for place in places]
        if share is None or not sum(needed):
            for place in places:
                self.allocate(place)
            return self
        self.shared = share(sum(needed))
        at = 0
        for place, taken in zip(places, needed, strict=True):
            sizes, dtype = self._sizes(place), self._specs[place].dtype
            memory = self.shared[at : at + prod(sizes) * dtype.itemsize]
            self._keep(place, memory.view(dtype).view(sizes))
            at += taken
        return self

    def allocate(self, place: int) -> torch.Tensor:
        """Makes the buffer of an input in memory of its own."""
        spec = self._specs[place]
        return self._keep(place, torch.zeros(self._sizes(place), dtype=spec.dtype, device=spec.device))

    def _sizes(self, place: int) -> list[int]:
        sizes, longer = list(self._specs[place].sizes), self.longer.get(place)
        if longer is not None:
            sizes[longer[0]] += longer[1]
        return sizes

    def _keep(self, place: int, made: torch.Tensor) -> torch.Tensor:
        self._whole[place], longer = made, self.longer.get(place)
        if longer is not None:
            made = made.narrow(longer[0], 0, self._specs[place].sizes[longer[0]])
        self.buffers[place] = self.arguments[place] = made
        return made

    def plain(self) -> Memory:
        """The same with nothing behind buffers: itself, or one with new buffers that hold what those here hold."""
        if not self.longer:
            return self
        made = Memory(self._specs, self.arguments[len(self._specs) :], {})
        made.arguments[: len(self._specs)] = self.arguments[: len(self._specs)]
        made.buffers, made._whole, made.shared = dict(self.buffers), dict(self._whole), self.shared
        for place in self.longer:
            made.allocate(place).copy_(self.buffers[place])
        return made

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All of it."""
        return list(self._whole.values())

    @property
    def extra(self) -> int:
        """The bytes behind buffers."""
        return sum(self._whole[place].nbytes - self.buffers[place].nbytes for place in self.longer)


@contextmanager
def unchanged(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Tensors are afterwards as they were."""
    before = [tensor.clone() for tensor in tensors]
    try:
        yield
    finally:
        for tensor, was in zip(tensors, before, strict=True):
            tensor.copy_(was)
