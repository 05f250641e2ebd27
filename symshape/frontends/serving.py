"""The serving records of an entry: its buckets with their figures, and the padding of each
symbol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from symshape.cost.cost import Cost
from symshape.cost.devices import DevicePeaks
from symshape.cost.roofline import Roofline
from symshape.cost.units import shown
from symshape.errors import SymShapeError
from symshape.exploring.serving_records import BucketRecord, ServingRecord
from symshape.runtime.entry import Entry
from symshape.runtime.runners.gradients.runner import GradientsRunner
from symshape.runtime.runners.padded.bucket import Bucket
from symshape.runtime.runners.padded.runner import PaddedRunner
from symshape.runtime.runners.pieces.runner import parts_of

__all__ = ["Costs", "serving_of"]

_MOST_SIZES = 1024


class Costs:
    """The costs of an entry's calls, at their sizes and at capacities.

    Args:
        entry: the entry.
        peaks: the device's peaks, for the roofline.
    """

    def __init__(self, entry: Entry, peaks: DevicePeaks | None = None) -> None:
        self._places = entry.program.positions
        try:
            self._cost: Cost | None = Cost.of(entry.program)
        except SymShapeError:
            self._cost = None
        self._roofline = (
            None if self._cost is None or peaks is None else Roofline(self._cost, peaks)
        )

    def _named(self, values: tuple[int, ...]) -> dict[str, int]:
        return {name: values[place] for name, place in self._places.items()}

    def attainable(self, entry: Entry) -> Iterator[str]:
        """Yield the least time of a call at the most frequent sizes."""
        seen = max(list(entry.seen.items()), key=lambda item: item[1].calls, default=None)
        if self._roofline is None or seen is None:
            return
        sizes = self._named(seen[0])
        try:
            found = self._roofline.at(**sizes)
        except SymShapeError:  # a size that only the run determines
            return
        where = ", ".join(f"{name}={size}" for name, size in sizes.items())
        yield f"on {self._roofline.peaks.name}{' at ' + where if where else ''}: {found}"

    def achieved(self, sizes: Mapping[str, int], milliseconds: float) -> str:
        """Return which share of the attainable speed a replay at these capacities achieves; empty
        if not known.
        """
        if self._roofline is None:
            return ""
        try:
            return str(self._roofline.at(**sizes).achieved(milliseconds / 1e3))
        except SymShapeError:
            return ""

    def _at(self, sizes: Mapping[str, int]) -> float:
        assert self._cost is not None
        cost = self._cost.at(**sizes)
        return cost.flops or cost.bytes

    def waste(self, caps: Mapping[str, int], calls: Mapping[tuple[int, ...], int]) -> float | None:
        """Return the cost of padding, relative to the unpadded cost of the calls; None where that
        is not known.
        """
        if self._cost is None:
            return None
        often = sorted(calls.items(), key=lambda item: -item[1])[:_MOST_SIZES]
        try:
            whole = self._at(caps)
            exact = sum(self._at(self._named(values)) * n for values, n in often)
        except SymShapeError:
            return None
        return whole * sum(n for _, n in often) / exact - 1 if exact else None


def serving_of(entry: Entry, costs: Costs | None = None) -> list[ServingRecord]:
    """Return a record for the entry's program, or for each of its pieces in order: padded, or run
    op by op.
    """
    found = []
    for program, runner in parts_of(entry.runner, entry.program):
        whole = program is entry.program
        part = "" if whole else program.name.removeprefix(f"{entry.program.name}, ")
        if isinstance(entry.runner, GradientsRunner):
            part += entry.runner.where(program)
        if not isinstance(runner, PaddedRunner):
            found.append(ServingRecord(part, "eager", reasons=list(runner)))
            continue
        buckets, notes = (
            _of_entry(entry, runner, costs or Costs(entry)) if whole else (_of_piece(runner), [])
        )
        if runner.failures:
            notes.append(f"given up for lack of memory: {runner.failures} times")
        padding = str(runner.padding()).splitlines()
        found.append(
            ServingRecord(part, runner.describe(), runner.accounts(), buckets, notes, padding)
        )
    return found


def _of_entry(
    entry: Entry, runner: PaddedRunner, costs: Costs
) -> tuple[list[BucketRecord], list[str]]:
    """Return each bucket, and notes on the calls without one; calls are assigned by the present
    buckets.
    """
    served: dict[Bucket | None, dict[tuple[int, ...], int]] = {}
    places = runner.served()
    for values, seen in list(entry.seen.items()):
        served.setdefault(places.get(values), {})[values] = seen.calls
    found = []
    for bucket in runner.buckets:
        calls = served.pop(bucket, {})
        sizes = _sizes(bucket)
        waste = costs.waste(sizes, calls)
        found.append(_bucket(bucket, sum(calls.values()), waste, costs))
    left = sum(sum(calls.values()) for calls in served.values())
    return found, [f"no bucket: {left} calls"] if left else []


def _of_piece(runner: PaddedRunner) -> list[BucketRecord]:
    """Return each bucket of a piece, whose calls are not counted."""
    return [_bucket(bucket) for bucket in runner.buckets]


def _sizes(bucket: Bucket) -> dict[str, int]:
    return {**bucket.made.exact, **bucket.made.caps}


def _bucket(
    bucket: Bucket, calls: int | None = None, waste: float | None = None, costs: Costs | None = None
) -> BucketRecord:
    sizes, exact = _sizes(bucket), bucket.made.exact
    replays = [(each.kernels, each.milliseconds) for each in bucket.variants if each.milliseconds]
    achieved = (
        costs.achieved(sizes, min(ms for _, ms in replays)) if costs is not None and replays else ""
    )
    return BucketRecord(
        sizes=", ".join(
            f"{name}{'=' if name in exact else '<='}{size}" for name, size in sizes.items()
        ),
        calls=calls,
        waste=waste,
        captures=bucket.captures,
        milliseconds=round(bucket.milliseconds, 3),
        memory=shown(bucket.bytes, "B"),
        replays=replays,
        achieved=achieved,
    )
