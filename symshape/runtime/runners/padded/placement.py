"""The placement of a call's sizes in a bucket, computed once for these sizes, as far as calls need
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import torch

from symshape.runtime.padding.results import Answer, Lend
from symshape.runtime.runners.padded.argument_writes import Again
from symshape.runtime.runners.padded.buffers import Memory

__all__ = ["Placement"]


@attrs.define(eq=False)
class Placement:
    """The placement of a call's sizes in a bucket.

    Attributes:
        values: the sizes of the call, by symbol.
        numbers: the integers that the bucket computes from the sizes.
        lend: lends results instead of copying them; None to copy.
        fill: the sizes' share of the capacities.
        inputs: the valid parts of the buffers; None before the first call that C++ does not serve.
        memory: the memory whose parts ``inputs`` are.
        sizes: the true sizes that the program reads.
        merged: by index of an input whose dimensions are products of sizes: its sizes, each a
            dimension of its own.
        answer: makes the results; None before the first call, which makes it while the device
            works.
        back: for each input that the program writes to, its index, and a function that writes its
            new elements.
    """

    values: Mapping[str, int]
    numbers: tuple[int, ...]
    lend: Lend | None = None
    fill: float = 1.0
    inputs: list[torch.Tensor] | None = None
    memory: Memory | None = None
    sizes: tuple[int, ...] = ()
    merged: Sequence[tuple[int, tuple[int, ...]]] = ()
    answer: Answer | None = None
    back: Sequence[tuple[int, Again]] = ()
