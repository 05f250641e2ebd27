"""A trace, and what a compiled function keeps, in words: guards, entries, buckets, who uses them, their waste."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from guards.sets.sources import spelled
from symshape.cost.cost import Cost
from symshape.cost.devices import DevicePeaks
from symshape.cost.peak_memory import PeakMemory
from symshape.cost.roofline import Roofline
from symshape.cost.units import shown
from symshape.errors import SymShapeError
from symshape.exploring.plain_text import table_text
from symshape.exploring.tables import guards_table, inputs_table, outputs_table, symbols_table
from symshape.graph.program import Program
from symshape.graph.text import describe_spec
from symshape.runtime.entry import Entry
from symshape.runtime.padding.report import padding_of
from symshape.runtime.runners.bucket import Bucket
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.runners.padded import PaddedRunner
from symshape.runtime.runners.piecewise import parts_of

__all__ = ["DevicePeaks", "report", "traced_report"]

_MOST_SIZES = 1024


def traced_report(program: Program) -> str:
    """A program as text: its symbols, inputs, outputs and guards as tables, its costs as formulas, and what pads."""
    numbers = (len(program.graph.nodes), "ops"), (len(program.symbols), "symbols"), (len(program.guards), "guards")
    parts = [f"{program.name}: {', '.join(f'{number} {what}' for number, what in numbers)}"]
    tables = (symbols_table(program), inputs_table(program), outputs_table(program), guards_table(program))
    parts += [table_text(table) for table in tables if table.rows]
    parts += [*_costs_of(program), str(padding_of(program))]
    return "\n\n".join(part for part in parts if part)


def _costs_of(program: Program) -> Iterator[str]:
    try:
        cost = Cost.of(program)
        lines = [f"FLOPs: {cost.flops}", f"bytes: {cost.bytes}", f"peak memory: {PeakMemory.of(program).total} bytes"]
        yield "\n".join([*lines, *cost.notes()])
    except SymShapeError as error:
        yield f"cost: not known ({error})"


def report(entries: Sequence[Entry], store: GraphStore, peaks: DevicePeaks | None = None) -> str:
    """For each entry what runs it; where it is padded, its buckets and what came of each symbol; then the budget.

    With the ``peaks`` of a device, also the least time of each entry on it, and what replays achieve of that.
    """
    lines: list[str] = []
    differ = len({str(entry.program.modes) for entry in entries}) > 1
    for entry in entries:
        calls = sum(each.calls for each in list(entry.seen.values()))
        lines.append(f"entry {entry.number}: {entry.runner.describe()}, {calls} calls")
        lines += [f"  {line}" for line in _serves(entry, differ)]
        costs = _Costs(entry, peaks)
        lines += [f"  {line}" for line in costs.attainable(entry)]
        for program, runner in parts_of(entry.runner, entry.program):
            margin, whole = "  ", program is entry.program
            piece = program.name.rpartition(", ")[2]
            if not isinstance(runner, PaddedRunner):
                lines += [f"  {piece} runs as it is:", *(f"    {reason}" for reason in runner)]
                continue
            if not whole:
                lines.append(f"  {piece}: {runner.describe()}")
                margin = "    "
            lines += [f"{margin}{runner.judgement}"] if runner.judgement else []
            lines += [margin + line for line in (_buckets(entry, runner, costs) if whole else _of_piece(runner))]
            lines += [margin + line for line in str(runner.padding()).splitlines()]
    if len(store) or store.evictions:
        lines.append(_budget(store))
    return "\n".join(lines) or "no entries"


def _serves(entry: Entry, differ: bool) -> Iterator[str]:
    """What an entry was traced for, its guards in the caller's words, and its modes where those of entries differ."""
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
    return f"kept: {len(store)} of {store.limit} graphs, {shown(store.bytes(), 'B')}{memory}, {store.evictions} evicted"


def _buckets(entry: Entry, runner: PaddedRunner, costs: _Costs) -> Iterator[str]:
    """A line for each bucket, and one for the calls that go to none; by the sizes as they are served now."""
    served: dict[Bucket | None, dict[tuple[int, ...], int]] = {}
    places = runner.served()
    for values, seen in list(entry.seen.items()):
        served.setdefault(places.get(values), {})[values] = seen.calls
    for bucket in runner.buckets:
        calls = served.pop(bucket, {})
        sizes = {**bucket.made.exact, **bucket.made.caps}
        told = f"{sum(calls.values())} calls{costs.waste(sizes, calls)}, "
        yield f"{_bucket(bucket, told)}{costs.achieved(sizes, bucket)}"
    left = sum(sum(calls.values()) for calls in served.values())
    if left:
        yield f"no bucket: {left} calls"
    if runner.failures:
        yield f"given up for lack of memory: {runner.failures} times"


def _of_piece(runner: PaddedRunner) -> Iterator[str]:
    """A line for each bucket of a piece, whose calls are not counted."""
    for bucket in runner.buckets:
        yield _bucket(bucket, "")
    if runner.failures:
        yield f"given up for lack of memory: {runner.failures} times"


def _bucket(bucket: Bucket, told: str) -> str:
    """A bucket: its sizes, what is told of its calls, how often it was captured, what it takes."""
    sizes = {**bucket.made.exact, **bucket.made.caps}
    text = ", ".join(f"{name}{'=' if name in bucket.made.exact else '<='}{size}" for name, size in sizes.items())
    captured = f"captured {bucket.captures} times (last {bucket.milliseconds:.1f} ms), {shown(bucket.bytes, 'B')}"
    return f"bucket {text}: {told}{captured}{_times(bucket)}"


def _times(bucket: Bucket) -> str:
    """How long a replay took with whose kernels, the fastest first; nothing where it was not timed."""
    timed = [f"{each.milliseconds:.3g} ms with {each.kernels}'s" for each in bucket.variants if each.milliseconds]
    return f", a replay {', '.join(timed)} kernels" if timed else ""


class _Costs:
    """What calls cost at their sizes and at capacities."""

    def __init__(self, entry: Entry, peaks: DevicePeaks | None) -> None:
        self._places = entry.program.positions
        try:
            self._cost: Cost | None = Cost.of(entry.program)
        except SymShapeError:
            self._cost = None
        self._roofline = None if self._cost is None or peaks is None else Roofline(self._cost, peaks)

    def _named(self, values: tuple[int, ...]) -> dict[str, int]:
        return {name: values[place] for name, place in self._places.items()}

    def attainable(self, entry: Entry) -> Iterator[str]:
        """The least time of a call at the sizes that came most often."""
        seen = max(list(entry.seen.items()), key=lambda item: item[1].calls, default=None)
        if self._roofline is None or seen is None:
            return
        sizes = self._named(seen[0])
        try:
            found = self._roofline.at(**sizes)
        except SymShapeError:  # a size that only the run tells
            return
        where = ", ".join(f"{name}={size}" for name, size in sizes.items())
        yield f"on {self._roofline.peaks.name}{' at ' + where if where else ''}: {found}"

    def achieved(self, sizes: Mapping[str, int], bucket: Bucket) -> str:
        """What the fastest replay of a bucket achieves of what is attainable at its capacities."""
        times = [each.milliseconds for each in bucket.variants if each.milliseconds]
        if self._roofline is None or not times:
            return ""
        try:
            return f", {self._roofline.at(**sizes).achieved(min(times) / 1e3)}"
        except SymShapeError:
            return ""

    def _at(self, sizes: Mapping[str, int]) -> float:
        assert self._cost is not None
        cost = self._cost.at(**sizes)
        return cost.flops or cost.bytes

    def waste(self, caps: Mapping[str, int], calls: Mapping[tuple[int, ...], int]) -> str:
        """What goes into padding, as a part of what the calls cost unpadded; nothing where that is not known."""
        if self._cost is None:
            return ""
        often = sorted(calls.items(), key=lambda item: -item[1])[:_MOST_SIZES]
        try:
            whole = self._at(caps)
            exact = sum(self._at(self._named(values)) * n for values, n in often)
        except SymShapeError:
            return ""
        return f", {whole * sum(n for _, n in often) / exact - 1:.0%} waste" if exact else ""
