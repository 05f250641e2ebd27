"""The memory of buckets: the buffers that inputs are copied to, and the arguments that programs run
on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch

from symshape.calls.generator_states import default_generator, state_of

__all__ = ["Memory", "Share", "aligned_bytes", "unchanged"]

Share = Callable[[int], torch.Tensor]
"""Returns a flat ``uint8`` tensor of at least this many bytes, shared with other buckets."""
_ALIGNMENT = 512  # bytes


def aligned_bytes(sizes: Sequence[int], dtype: torch.dtype) -> int:
    """Return the bytes of a buffer, rounded up to the alignment of the next one.

    >>> aligned_bytes((3, 5), torch.float32), aligned_bytes((0,), torch.int64)
    (512, 0)
    """
    return -(-prod(sizes) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT


class Memory:
    """The inputs of a bucket's program in memory: in own buffers, or at the caller's address.

    Args:
        specs: the specs of the inputs.
        sizes: the true sizes, which the program takes after the inputs.
        longer: by index of an input: the dimension in which its buffer has memory behind it, and
            for how many positions.

    Attributes:
        arguments: the arguments of the program; None for one that is not there yet.
        buffers: the buffers that inputs are copied to, by index.
        longer: as given.
        shared: the bytes that the buffers share with those of other buckets; None if they share
            none.
    """

    def __init__(
        self,
        specs: Sequence[Any],
        sizes: Sequence[torch.Tensor],
        longer: Mapping[int, tuple[int, int]],
    ) -> None:
        self._specs = specs
        self._whole: dict[int, torch.Tensor] = {}  # the buffers, with the memory behind them
        self.longer = longer
        self.buffers: dict[int, torch.Tensor] = {}
        self.arguments: list[Any] = [None] * len(specs) + [*sizes]
        self.shared: torch.Tensor | None = None

    def allocate_all(self, places: Sequence[int], share: Share | None) -> Memory:
        """Allocate the buffers of these inputs, in shared memory if ``share`` is given; return
        ``self``.
        """
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
        """Allocate the buffer of an input in memory of its own, and return the buffer."""
        spec = self._specs[place]
        return self._keep(
            place, torch.zeros(self._sizes(place), dtype=spec.dtype, device=spec.device)
        )

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
        """Return memory without extra space behind buffers: ``self``, or new buffers with the same
        contents.
        """
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
        """The buffers, with the memory behind them."""
        return list(self._whole.values())

    @property
    def extra(self) -> int:
        """The bytes behind buffers."""
        return sum(self._whole[place].nbytes - self.buffers[place].nbytes for place in self.longer)


@contextmanager
def unchanged(
    tensors: Sequence[torch.Tensor], drawing: torch.device | None = None
) -> Iterator[None]:
    """Restore the tensors' values, and the random state of the device ``drawing``, when the context
    ends.
    """
    before = [tensor.clone() for tensor in tensors]
    default = None if drawing is None else default_generator(drawing)
    state = None if default is None else state_of(default)
    try:
        yield
    finally:
        if default is not None and state is not None:
            default.set_state(state)
        for tensor, was in zip(tensors, before, strict=True):
            tensor.copy_(was)
