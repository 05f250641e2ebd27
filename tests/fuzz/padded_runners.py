"""What is padded of a compiled function, for fuzzers: its runners, and poison for their buffers."""

from __future__ import annotations

from typing import Any

from symshape.runtime.runners.padded.runner import PaddedRunner
from symshape.runtime.runners.pieces.runner import padded_parts
from tests.meta_fns.padding.poison import poison

__all__ = ["padded_runners", "poison_buffers", "served"]


def padded_runners(compiled: Any) -> list[PaddedRunner]:
    """What pads whole programs or pieces of them."""
    return [
        runner
        for entry in compiled.entries
        for _, runner in padded_parts(entry.runner, entry.program)
    ]


def served(compiled: Any) -> int:
    """A number that grows with each call of which a bucket serves all or a piece."""
    used = [
        [bucket.lease.credit.last_used for bucket in each.buckets]
        for each in padded_runners(compiled)
    ]
    return sum(max(each, default=0) for each in used)


def poison_buffers(compiled: Any, number: int) -> None:
    """Fills every buffer with values that no result may depend on."""
    for runner in padded_runners(compiled):
        for bucket in runner.buckets:
            for buffer in bucket.buffers:
                poison(buffer, number)
