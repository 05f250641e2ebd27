"""The true sizes of a call, where a padded program reads them: written by one launch that nobody waits for."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["TrueSizes"]


class TrueSizes:
    """The sizes that a padded program reads; each call adds what its own differ by from those of the call before.

    What is added comes with the launch: no memory of the host has to stay as it is until the device has read it.

    Args:
        places: where they are among the numbers of a call.
        device: which device reads them.

    Attributes:
        tensor: the sizes, as whatever runs on the device next will see them.

    >>> sizes = TrueSizes((2, 0), torch.device("cpu"))
    >>> sizes.write(sizes.of((7, 8, 9)))
    >>> sizes.tensor.tolist()
    [9, 7]
    >>> sizes.write((3, 1))
    >>> sizes.tensor.tolist()
    [3, 1]
    """

    def __init__(self, places: Sequence[int], device: torch.device) -> None:
        self._places = tuple(places)
        self.tensor = torch.zeros(len(places), dtype=torch.int64, device=device)
        self._each = list(self.tensor.unbind())
        self._held: tuple[int, ...] | None = (0,) * len(places)  # None: nobody knows

    def of(self, found: Sequence[int]) -> tuple[int, ...]:
        """The sizes of a call with these numbers."""
        return tuple([found[place] for place in self._places])

    def write(self, sizes: tuple[int, ...]) -> None:
        """From now on the device reads these."""
        held = self._held
        if sizes == held:
            return
        self._held = None
        if held is None:
            self.tensor.copy_(torch.tensor(sizes))
        else:
            torch._foreach_add_(self._each, [new - old for new, old in zip(sizes, held, strict=True)])
        self._held = sizes
