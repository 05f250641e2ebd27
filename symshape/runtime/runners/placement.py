"""Where a call of certain sizes goes in a bucket: made once for these sizes, as far as calls need it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import torch

from symshape.runtime.padding.results import Answer, Lend
from symshape.runtime.runners.bucket_memory import Memory
from symshape.runtime.runners.rewriting import Again

__all__ = ["Placement"]


@attrs.define(eq=False)
class Placement:
    """Where a call of certain sizes goes in a bucket.

    Attributes:
        values: the sizes of the call, by symbol.
        numbers: what the bucket computes from them.
        lend: how results are answered that are not copied.
        fill: which share of the capacities the sizes are.
        inputs: the valid parts of the buffers; None before the first call that C++ does not serve.
        memory: the memory that these are parts of.
        sizes: the true sizes that the program reads.
        merged: by place of an input whose dimensions are products of sizes: its sizes, each a dimension of its own.
        answer: makes the results; None before the first call, which makes it while the device is at work.
        back: for each input that the program writes to, its place, and what writes its new elements from the tensors.
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
