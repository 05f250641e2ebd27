"""A trace and a compiled function's cache in words: guards, entries, buckets, their use, their
waste.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from guards.sets.sources import spelled
from symshape.cost.cost import Cost
from symshape.cost.devices import DevicePeaks
from symshape.cost.peak_memory import PeakMemory
from symshape.cost.units import shown
from symshape.errors import SymShapeError
from symshape.exploring.plain_text import table_text
from symshape.exploring.serving_records import BucketRecord, ServingRecord
from symshape.exploring.tables import guards_table, inputs_table, outputs_table, symbols_table
from symshape.frontends.serving import Costs, serving_of
from symshape.graph.program import Program
from symshape.graph.text import describe_spec
from symshape.options import Options
from symshape.runtime.entry import Entry
from symshape.runtime.padding.report import padding_of
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.runners.randomness import draws_any

__all__ = ["DevicePeaks", "report", "traced_report"]


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
    """
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
    lines += [_bucket(each) for each in served.buckets]
    lines += [*served.notes, *served.padding, *served.reasons]
    yield from (f"  {line}" for line in lines) if served.part else lines


def _bucket(bucket: BucketRecord) -> str:
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
