"""The splitting of a padded program into pieces that leave out ops that cannot be captured or that
refuse padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from symshape.graph.program import Program
from symshape.runtime.padding.planning import left_out
from symshape.runtime.runners.cuda.capture_faults import around_uncaptured
from symshape.runtime.runners.padded.bucket_finder import BucketFinder
from symshape.runtime.runners.protocol import Cut, Runner

__all__ = ["Apart"]

_FEW = 8
"""The number of exact-size tuples up to which a bucket for each costs less than splitting the
program.
"""


class Apart:
    """The decision whether pieces replace a padded program, and the pieces.

    Args:
        program: the program.
        device: the device that the program computes on.
        cut: splits the program around the given ops; None for a program that is never split.

    Attributes:
        instead: the runner of the pieces; None as long as the program is not split.
        spoilt: whether a capture has failed, so that the next call is to find out which op failed.
        whole: whether refusals of padding no longer lead to a split.
    """

    def __init__(self, program: Program, device: torch.device, cut: Cut | None) -> None:
        self._program, self._device, self._cut = program, device, cut
        self.instead: Runner | None = None
        self.spoilt = False
        self.whole = cut is None

    def spoil(self) -> None:
        """Record that a capture of the program has failed."""
        self.spoilt = self._cut is not None

    def without_uncaptured(self, leaves: Sequence[Any], values: Sequence[int]) -> None:
        """After a failed capture, split the program around the op that cannot be captured, if one
        is found.
        """
        if self.spoilt:
            self.spoilt = False
            self.instead = around_uncaptured(self._cut, self._program, self._device, leaves, values)

    def without_refused(self, finder: BucketFinder) -> Runner | None:
        """Split the program around the ops that refuse padding, if no symbol is padded or too many
        sizes are exact.
        """
        refused = finder.refusals
        if not refused:
            return None
        values = {
            tuple(each.made.exact.get(name, 0) for name in refused) for each in finder.buckets()
        }
        if finder.padded and len(values) <= _FEW:
            return None
        self.whole = True
        left = left_out(refused.values())
        self.instead = self._cut(left) if left and self._cut is not None else None
        if self.instead is not None:
            finder.clear()
        return self.instead

    def release(self) -> None:
        """Release the pieces."""
        self.spoilt = False
        if self.instead is not None:
            self.instead.release()
