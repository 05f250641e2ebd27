"""The memory of one bucket: what inputs are copied to, and what its program is run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

__all__ = ["Memory"]


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
    """

    def __init__(
        self, specs: Sequence[Any], sizes: Sequence[torch.Tensor], longer: Mapping[int, tuple[int, int]]
    ) -> None:
        self._specs = specs
        self._whole: dict[int, torch.Tensor] = {}  # the buffers, with what is behind them
        self.longer = longer
        self.buffers: dict[int, torch.Tensor] = {}
        self.arguments: list[Any] = [None] * len(specs) + [*sizes]

    def allocate(self, place: int) -> torch.Tensor:
        """Makes the buffer of an input."""
        spec, longer = self._specs[place], self.longer.get(place)
        sizes = list(spec.sizes)
        if longer is not None:
            sizes[longer[0]] += longer[1]
        self._whole[place] = made = torch.zeros(sizes, dtype=spec.dtype, device=spec.device)
        if longer is not None:
            made = made.narrow(longer[0], 0, spec.sizes[longer[0]])
        self.buffers[place] = self.arguments[place] = made
        return made

    def plain(self) -> Memory:
        """The same with nothing behind buffers: itself, or one with new buffers that hold what those here hold."""
        if not self.longer:
            return self
        made = Memory(self._specs, self.arguments[len(self._specs) :], {})
        made.arguments[: len(self._specs)] = self.arguments[: len(self._specs)]
        made.buffers, made._whole = dict(self.buffers), dict(self._whole)
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
