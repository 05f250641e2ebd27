"""When a padded program is taken to pieces: what could not be captured, or refuses padding, is left out of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from symshape.graph.program import Program
from symshape.runtime.padding.planning import left_out
from symshape.runtime.runners.bucket_finder import BucketFinder
from symshape.runtime.runners.protocol import Cut, Runner
from symshape.runtime.runners.uncaptured import around_uncaptured

__all__ = ["Apart"]

_FEW = 8
"""Values of sizes that refuse padding, for each of which a bucket of its own is no loss."""


class Apart:
    """Decides whether pieces serve in place of a padded program.

    Args:
        program: the program.
        device: where it computes.
        cut: takes it to pieces; None for a program that stays whole.

    Attributes:
        instead: what serves in its place; None as long as it does itself.
        spoilt: whether its capture has failed, and the next call may find out why.
        whole: whether refusals do not matter (any more).
    """

    def __init__(self, program: Program, device: torch.device, cut: Cut | None) -> None:
        self._program, self._device, self._cut = program, device, cut
        self.instead: Runner | None = None
        self.spoilt = False
        self.whole = cut is None

    def spoil(self) -> None:
        """Its capture has failed."""
        self.spoilt = self._cut is not None

    def without_uncaptured(self, leaves: Sequence[Any], values: Sequence[int]) -> None:
        """Takes it apart around the op that cannot be captured in a call like this, if one is found."""
        if self.spoilt:
            self.spoilt = False
            self.instead = around_uncaptured(self._cut, self._program, self._device, leaves, values)

    def without_refused(self, finder: BucketFinder) -> Runner | None:
        """Takes it apart around what refuses padding, if nothing else is padded, or if too many sizes are exact."""
        refused = finder.refusals
        if not refused:
            return None
        values = {tuple(each.made.exact.get(name, 0) for name in refused) for each in finder.buckets()}
        if finder.pads() and len(values) <= _FEW:
            return None
        self.whole = True
        left = left_out(refused.values())
        self.instead = self._cut(left) if left and self._cut is not None else None
        if self.instead is not None:
            finder.clear()
        return self.instead

    def release(self) -> None:
        """Lets go of what serves in its place."""
        self.spoilt = False
        if self.instead is not None:
            self.instead.release()
