"""The true sizes of a call on the device, read by a padded program and written without waiting."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["TrueSizes"]


_FEW = 3  # separate launches that take as long as one launch for a list of tensors


class TrueSizes:
    """The true sizes that a padded program reads; each call writes the sizes that changed since the
    last call.

    A few sizes are filled in; many are changed by one launch that adds the differences.  The
    numbers are arguments of the launches, so no host memory has to stay unchanged until the device
    has read it.

    Args:
        places: the indices of the sizes among the numbers of a call.
        device: the device that reads them.

    Attributes:
        places: the indices of the sizes among the numbers of a call.
        tensor: the sizes, as the next kernels on the device will see them.
        each: each size, as a view of ``tensor``.
        held: the sizes written last; None while unknown.  (``compiled_launch.cpp`` reads and writes
            it, too.)

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
        """Return the true sizes of a call with these numbers."""
        return tuple([found[place] for place in self.places])

    def write(self, sizes: tuple[int, ...]) -> None:
        """Write the sizes for the next kernels on the device."""
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
                torch._foreach_add_(
                    self.each, [new - old for new, old in zip(sizes, held, strict=True)]
                )
        self.held = sizes
