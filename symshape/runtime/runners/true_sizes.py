"""The true sizes of a call, where a padded program reads them: written by launches that nobody waits for."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["TrueSizes"]


_FEW = 3  # launches, which take as long as one of a list


class TrueSizes:
    """The sizes that a padded program reads; each call writes those that are not what the call before had.

    A few are filled in; many get what they differ by added, in one launch.  The numbers come with the launches: no
    memory of the host has to stay as it is until the device has read it.

    Args:
        places: where they are among the numbers of a call.
        device: which device reads them.

    Attributes:
        places: where they are among the numbers of a call.
        tensor: the sizes, as whatever runs on the device next will see them.
        each: each of them, as a view of that.
        held: what was written last; None while nobody knows.  (``compiled_launch.cpp`` reads and writes it, too.)

    >>> sizes = TrueSizes((2, 0), torch.device("cpu"))
    >>> sizes.write(sizes.of((7, 8, 9)))
    >>> sizes.tensor.tolist()
    [9, 7]
    >>> sizes.write((3, 1))
    >>> sizes.tensor.tolist()
    [3, 1]
    """

    def __init__(self, places: Sequence[int], device: torch.device) -> None:
        self.places = tuple(places)
        self.tensor = torch.zeros(len(places), dtype=torch.int64, device=device)
        self.each = list(self.tensor.unbind())
        self.held: tuple[int, ...] | None = (0,) * len(places)

    def of(self, found: Sequence[int]) -> tuple[int, ...]:
        """The sizes of a call with these numbers."""
        return tuple([found[place] for place in self.places])

    def write(self, sizes: tuple[int, ...]) -> None:
        """From now on the device reads these."""
        held = self.held
        if sizes == held:
            return
        self.held = None
        if held is None:
            self.tensor.copy_(torch.tensor(sizes))
        else:
            changed = [place for place, size in enumerate(sizes) if size != held[place]]
            if len(changed) <= _FEW:
                for place in changed:
                    self.each[place].fill_(sizes[place])
            else:
                torch._foreach_add_(self.each, [new - old for new, old in zip(sizes, held, strict=True)])
        self.held = sizes
