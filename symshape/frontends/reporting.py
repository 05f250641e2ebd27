"""A trace and a compiled function's cache in words: guards, entries, buckets, their use, their
waste.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from guards.sets.sources import spelled
from symshape.cost.cost import Cost
from symshape.cost.devices import DevicePeaks
from symshape.cost.peak_memory import PeakMemory
from symshape.cost.roofline import Roofline
from symshape.cost.units import shown
from symshape.errors import InputError, SymShapeError
from symshape.exploring.report_records import BucketRecord, ServingRecord
from symshape.exploring.tables import (
    guards_table,
    inputs_table,
    outputs_table,
    symbols_table,
    table_text,
)
from symshape.graph.program import Program
from symshape.graph.text import describe_spec
from symshape.options import Options
from symshape.runtime.entry import Entry
from symshape.runtime.padding.report import padding_of
from symshape.runtime.runners.gradients.runner import GradientsRunner
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.runners.padded.bucket import Bucket
from symshape.runtime.runners.padded.runner import PaddedRunner
from symshape.runtime.runners.pieces.runner import parts_of
from symshape.runtime.runners.randomness import draws_any

# -- The serving records of an entry: its buckets with their figures, and the padding of each
# symbol.
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


def traced_report(program: Program) -> str:
    """Return a program as text: tables of symbols, inputs, outputs and guards, cost formulas, and
    padding.
    """
    numbers = (
        (len(program.graph.nodes), "ops"),
        (len(program.symbols), "symbols"),
        (len(program.guards), "guards"),
    )
    parts = [f"{program.name}: {', '.join(f'{number} {what}' for number, what in numbers)}"]
    tables = (
        symbols_table(program),
        inputs_table(program),
        outputs_table(program),
        guards_table(program),
    )
    parts += [table_text(table) for table in tables if table.rows]
    parts += [
        *_costs_of(program),
        str(padding_of(program, any_randomness=draws_any(program, Options()))),
    ]
    return "\n\n".join(part for part in parts if part)


def _costs_of(program: Program) -> Iterator[str]:
    try:
        cost = Cost.of(program)
        lines = [
            f"FLOPs: {cost.flops}",
            f"bytes: {cost.bytes}",
            f"peak memory: {PeakMemory.of(program).total} bytes",
        ]
        yield "\n".join([*lines, *cost.notes()])
    except SymShapeError as error:
        yield f"cost: not known ({error})"


def report(entries: Sequence[Entry], store: GraphStore, peaks: DevicePeaks | None = None) -> str:
    """Return for each entry its runner; if padded, its buckets and each symbol's padding; then the
    budget.

    With the ``peaks`` of a device, also the least time of each entry on it, and what replays
    achieve of that.

    Raises:
        InputError: ``peaks`` is something else.
    """
    if peaks is not None and not isinstance(peaks, DevicePeaks):
        raise InputError(
            f"peaks={peaks!r} must be a symshape.DevicePeaks, as measure_device makes it"
        )
    lines: list[str] = []
    differ = len({str(entry.program.modes) for entry in entries}) > 1
    for entry in entries:
        calls = sum(each.calls for each in list(entry.seen.values()))
        lines.append(f"entry {entry.number}: {entry.runner.describe()}, {calls} calls")
        lines += [f"  {line}" for line in _serves(entry, differ)]
        costs = Costs(entry, peaks)
        lines += [f"  {line}" for line in costs.attainable(entry)]
        for served in serving_of(entry, costs):
            lines += [f"  {line}" for line in _served(served)]
    if len(store) or store.evictions:
        lines.append(_budget(store))
    return "\n".join(lines) or "no entries"


def _serves(entry: Entry, differ: bool) -> Iterator[str]:
    """Yield the inputs of an entry, its guards in the caller's words, and its modes where entries
    differ in them.
    """
    program = entry.program
    for each in program.graph.inputs:
        yield f"{each.path}: {describe_spec(each.value.spec)}"
    names = spelled(program.sources)
    for guard in program.guards:
        yield f"needs {guard.text(names)}" + (f"  # {guard.origin}" if guard.origin else "")
    if differ:
        yield f"under {program.modes}"


def _budget(store: GraphStore) -> str:
    memory = "" if store.memory is None else f" of {shown(store.memory, 'B')}"
    return (
        f"kept: {len(store)} of {store.limit} graphs, {shown(store.bytes(), 'B')}{memory}, "
        f"{store.evictions} evicted"
    )


def _served(served: ServingRecord) -> Iterator[str]:
    """Yield the report of a part of an entry: a piece below its name, a whole program without a
    name.
    """
    if served.reasons:
        yield f"{served.part} runs eagerly:"
    elif served.part:
        yield f"{served.part}: {served.runner}"
    lines = [*served.accounts]
    lines += [_bucket_line(each) for each in served.buckets]
    lines += [*served.notes, *served.padding, *served.reasons]
    yield from (f"  {line}" for line in lines) if served.part else lines


def _bucket_line(bucket: BucketRecord) -> str:
    """Return a line on a bucket: its sizes, its calls and their waste, its captures, its memory."""
    told = "" if bucket.calls is None else f"{bucket.calls} calls, "
    told += "" if bucket.waste is None else f"{bucket.waste:.0%} waste, "
    captured = (
        f"captured {bucket.captures} times (last {bucket.milliseconds:.1f} ms), {bucket.memory}"
    )
    timed = [f"{milliseconds:.3g} ms with {kernels}'s" for kernels, milliseconds in bucket.replays]
    replays = f", a replay {', '.join(timed)} kernels" if timed else ""
    return (
        f"bucket {bucket.sizes}: "
        f"{told}{captured}{replays}{f', {bucket.achieved}' if bucket.achieved else ''}"
    )
