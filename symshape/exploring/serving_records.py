"""The part of a report on what serves calls, as plain data: padded programs for ranges of sizes,
with their figures.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class BucketRecord:
    """One padded program for a range of sizes.

    Attributes:
        sizes: its capacities (``<=``) and exact sizes (``=``), in symbols.
        calls: how many calls go to it; None where these are not counted.
        waste: what goes into padding, as a part of what the calls cost unpadded; None where that is
            not known.
        captures: how often it was captured.
        milliseconds: how long that took, the last time.
        memory: what it takes, beside what it shares, with a unit.
        replays: whose kernels a replay was timed with, and its milliseconds; the fastest first.
        achieved: what of the device the fastest achieves, in words; empty where nobody asked.
    """

    sizes: str
    calls: int | None
    waste: float | None
    captures: int
    milliseconds: float
    memory: str
    replays: list[tuple[str, float]] = attrs.field(factory=list)
    achieved: str = ""


@attrs.frozen
class ServingRecord:
    """The server of a program, or of one piece of it.

    Attributes:
        part: which piece; empty for the whole program.
        runner: what runs it.
        accounts: estimates of what calls take, then each offer, made or not, with its credit; empty
            where each call has a bucket.
        buckets: one for each range of sizes.
        notes: what else came of its calls.
        padding: what came of each symbol: padded, with what repairs, or refused, with the line and
            what would help.
        reasons: why it runs unpadded, with the user's lines; nothing where it is padded.
    """

    part: str
    runner: str
    accounts: list[str] = attrs.field(factory=list)
    buckets: list[BucketRecord] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)
    padding: list[str] = attrs.field(factory=list)
    reasons: list[str] = attrs.field(factory=list)
