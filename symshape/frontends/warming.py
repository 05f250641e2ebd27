"""Buckets made before calls need them, kernels compiled beside calls: ``Compiled.warm_up`` and
``.settle``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import attrs

from guards.sets.codegen import compile_check
from symshape.cost.domain import Domain
from symshape.cost.graph_memory import (
    BucketGraph,
    GraphMemory,
    bucket_graph,
    check_budget,
    graph_memory,
)
from symshape.cost.units import shown
from symshape.errors import InputError
from symshape.exploring.progress import progress_bar
from symshape.exploring.tables import Table, table_html, table_text
from symshape.graph.program import Program, slot_names
from symshape.planning.bucket_plan import BucketPlan
from symshape.planning.traffic import Traffic
from symshape.runtime.entry import Entry
from symshape.runtime.runners.padded.runner import PaddedRunner, Warmed
from symshape.runtime.runners.pieces.runner import padded_parts


@attrs.frozen
class WarmUp:
    """The result of a warm-up: the buckets that were made before calls needed them.

    Attributes:
        made: the number of an entry and the outcome for one tuple of sizes, in the order in which
            they were tried.
        bytes: memory that all buckets of the function hold afterwards.  Buckets share memory: this
            is less than the sum of what each uses.
        foretold: the memory that the buckets' graphs were expected to take, computed before the
            first capture; None on a CPU, unless a budget was given.
    """

    made: tuple[tuple[int, Warmed], ...]
    bytes: int
    foretold: GraphMemory | None = None

    @property
    def graphs(self) -> int:
        """Return how many buckets are ready."""
        return sum(each.ready for _, each in self.made)

    @property
    def milliseconds(self) -> float:
        """Return the time that the warm-up took, in ms."""
        return sum(each.milliseconds for _, each in self.made)

    @property
    def failures(self) -> tuple[Warmed, ...]:
        """Return the outcomes of buckets that could not be made."""
        return tuple(each for _, each in self.made if not each.ready)

    def table(self) -> Table:
        """Return a table: for each bucket its time and memory, or why it could not be made."""
        rows = []
        for number, each in self.made:
            caps = ", ".join(f"{name}={size}" for name, size in each.sizes.items())
            figures = (
                (f"{each.milliseconds:.1f}", f"{each.bytes / 2**20:.2f}")
                if each.ready
                else ("", "")
            )
            rows.append((str(number), caps, *figures, each.reason))
        ready = f"{self.graphs} of {len(rows)} buckets in {self.milliseconds:.0f} ms"
        title = f"{ready}; all buckets hold {shown(self.bytes, 'B')}"
        numbers = frozenset({"entry", "ms", "MiB"})
        return Table(
            title, ("entry", "up to", "ms", "MiB", "why not"), tuple(rows), numbers=numbers
        )

    def __str__(self) -> str:
        return table_text(self.table())

    def _repr_html_(self) -> str:
        return table_html(self.table())


def _outside(program: Program, caps: Mapping[str, int]) -> str:
    """Return the reason why a program has no bucket of these sizes: the guards that refuse them."""
    broken = _broken(program, caps)
    return "outside of the guards" + (f": {', '.join(broken)}" if broken else "")


Work = list[tuple[Entry, dict[str, int]]]


def warm_up(
    entries: Sequence[Entry],
    sizes: BucketPlan | Iterable[Any],
    *,
    progress: bool,
    budget: int | None = None,
) -> WarmUp:
    """Make and capture a bucket for each of the sizes, the largest first: the others then fit into
    its memory.

    Raises:
        InputError: there is nothing to warm up, sizes do not belong to the program, or the budget
            is too small.
    """
    warmable, wanted, work = planned_work(entries, sizes)
    foretold = None
    if budget is not None or _on_cuda(warmable):
        buckets = foretold_buckets(work)
        foretold = graph_memory(buckets) if budget is None else check_budget(buckets, budget)
    served = [caps for _, caps in work]
    made: list[tuple[int, Warmed]] = []
    for entry in warmable:
        own = [caps for each, caps in work if each is entry]
        for program, runner in padded_parts(entry.runner, entry.program):
            named = [caps for caps in own if program.positions.keys() <= caps.keys()]
            known = [caps for caps in named if _holds(program, caps)]
            if known or (not named and program.positions.keys() <= entry.program.positions.keys()):
                runner.prefer([{name: caps[name] for name in program.positions} for caps in known])
    with progress_bar("capturing", len(work), shown=progress) as step:
        for entry, caps in work:
            made.append((entry.number, _warmed(entry, caps)))
            step(", ".join(f"{name}={size}" for name, size in caps.items()))
    general = most_general(warmable)
    made += [
        (general.number, Warmed(caps, reason=_outside(general.program, caps)))
        for caps in wanted
        if caps not in served
    ]
    stores = {
        id(runner.store): runner.store
        for each in warmable
        for _, runner in padded_parts(each.runner, each.program)
    }
    return WarmUp(tuple(made), sum(each.bytes() for each in stores.values()), foretold)


def planned_work(
    entries: Sequence[Entry], sizes: BucketPlan | Iterable[Any]
) -> tuple[list[Entry], list[dict[str, int]], Work]:
    """Return the entries with buckets, the sizes by symbol, and the buckets to make, the largest
    first.

    Raises:
        InputError: there is nothing to warm up, or sizes do not belong to the program.
    """
    warmable = [
        each
        for each in entries
        if any(padded_parts(each.runner, each.program)) and each.program.positions
    ]
    if not warmable:
        what = sorted({each.runner_name for each in entries}) or [
            "no program yet: call it once, with any sizes"
        ]
        raise InputError(
            'warm_up makes buckets of runner="padded" for programs with symbols (dynamic=True has '
            "them from the "
            f"first call on); here there is {', '.join(what)}"
        )
    wanted = _wanted(sizes, most_general(warmable))
    wanted.sort(key=lambda caps: prod(caps.values()), reverse=True)
    return (
        warmable,
        wanted,
        [(entry, caps) for caps in wanted for entry in warmable if _belongs(entry, caps)],
    )


def _on_cuda(entries: Sequence[Entry]) -> bool:
    parts = (runner for each in entries for _, runner in padded_parts(each.runner, each.program))
    return any(runner.device.type == "cuda" for runner in parts)


def foretold_buckets(work: Work) -> list[BucketGraph]:
    """Return the buckets that a warm-up would make, in the order in which it would make them."""
    found: list[BucketGraph] = []
    for entry, caps in work:
        for program, runner in _known_parts(entry, caps):
            made = runner.plan_for({name: caps[name] for name in program.positions})
            if made is not None:
                found.append(bucket_graph(program, made, lent=runner.lends))
    return found


def settle(entries: Sequence[Entry], seconds: float | None) -> bool:
    """Wait for background compilation of kernels, at most these seconds; return whether none is
    left.

    Raises:
        InputError: ``seconds`` is no number.
    """
    given: object = seconds
    if given is not None and (type(given) not in (int, float) or given != given):
        raise InputError(f"seconds={given!r} must be None or a number of seconds")
    until = None if seconds is None else time.monotonic() + seconds
    parts = [part for each in entries for part in padded_parts(each.runner, each.program)]
    return all(runner.settle(until) for _, runner in parts)


def _known_parts(entry: Entry, caps: Mapping[str, int]) -> list[tuple[Program, PaddedRunner]]:
    """Return the padded parts of an entry that have only these sizes, and hold for them.

    A trace with backward may hold for fewer sizes than the entry; then there are several.
    """
    parts = padded_parts(entry.runner, entry.program)
    return [
        (program, runner)
        for program, runner in parts
        if program.positions.keys() <= caps.keys() and _holds(program, caps)
    ]


def _of_data(entry: Entry) -> set[str]:
    """Return the sizes in pieces of an entry that are determined when it runs."""
    parts = padded_parts(entry.runner, entry.program)
    return {
        name for program, _ in parts for name in program.positions
    } - entry.program.positions.keys()


def _warmed(entry: Entry, caps: Mapping[str, int]) -> Warmed:
    """Make the buckets of an entry for these sizes (one for each of its pieces); return the
    outcome.
    """
    found = [
        runner.warm_up({name: caps[name] for name in program.positions})
        for program, runner in _known_parts(entry, caps)
    ]
    if not found:
        names = ", ".join(sorted(_of_data(entry) - caps.keys()))
        if not names:
            return Warmed(caps, reason=_outside(entry.program, caps))
        return Warmed(
            caps,
            reason=(
                f"the sizes of its pieces are known only at run time: give sizes for {names}, too"
            ),
        )
    sizes = dict(caps)
    for each in found:
        sizes.update(each.sizes)
    reasons = dict.fromkeys(each.reason for each in found if each.reason)
    milliseconds, taken = (
        sum(each.milliseconds for each in found),
        sum(each.bytes for each in found),
    )
    return Warmed(sizes, milliseconds, taken, "; ".join(reasons))


def _wanted(sizes: Any, entry: Entry) -> list[dict[str, int]]:
    """Return the sizes by symbol, each once.

    Raises:
        InputError: they are no sizes, or lack one that the program has.
    """
    names = tuple(entry.program.positions)
    if isinstance(sizes, BucketPlan):
        found = [dict(each) for each in sizes.sizes]
    elif isinstance(sizes, Traffic):
        raise InputError(
            "traffic is no list of capacities; plan first: warm_up(symshape.plan(compiled))"
        )
    elif isinstance(sizes, Iterable) and not isinstance(sizes, (str, Mapping)):
        listed = list(sizes)
        by_name = [tuple(each) for each in listed if isinstance(each, Mapping)]
        points = Traffic.of(listed, by_name[0] if by_name else names)
        found = [dict(zip(points.symbols, point, strict=True)) for point in points.counts]
    else:
        raise InputError(
            f"warm_up needs a plan or a list of sizes of {', '.join(names)}, not {sizes!r}"
        )
    for each in found:
        if not set(names) <= each.keys() <= {*names, *_of_data(entry)}:
            more = "".join(f" (and, if you like, {name})" for name in sorted(_of_data(entry)))
            raise InputError(
                f"sizes of {', '.join(names)}{more} are needed, not of "
                f"{', '.join(each) or 'nothing'}: those are the symbols of entry {entry.number}"
            )
    return list({tuple(each.items()): each for each in found}.values())


def _belongs(entry: Entry, caps: Mapping[str, int]) -> bool:
    """Return whether an entry has these symbols and would serve a call of these sizes."""
    names = set(entry.program.positions)
    if not names <= caps.keys() <= names | _of_data(entry):
        return False
    return _holds(entry.program, caps)


def _holds(program: Program, caps: Mapping[str, int]) -> bool:
    """Return whether a program's guards hold for these sizes."""
    return not _broken(program, caps)


def _broken(program: Program, caps: Mapping[str, int]) -> list[str]:
    """Return the guards that speak of these sizes alone and do not hold for them."""
    return Domain.of(program).broken(caps)


# -- The sizes that a compiled function has seen, as traffic for the planner.
def traffic_of(entries: Sequence[Entry], number: int | None = None) -> Traffic:
    """Return the sizes of an entry's calls: those it served, or could have served when an earlier
    entry did.

    Args:
        entries: the entries of a compiled function.
        number: the number of the entry; if not given, the one with most symbols, then with most
            calls.

    Raises:
        InputError: there is no such entry, it has no symbols, or it has served no call.
    """
    entry = most_general(entries) if number is None else _numbered(entries, number)
    program = entry.program
    places = program.positions
    if not places:
        raise InputError(
            f"entry {entry.number} has no symbols: call the function with other sizes first, or "
            "compile it with dynamic=True"
        )
    admits = compile_check(entry.guards, slot_names(len(program.slots))).check
    sources = [slot.source for slot in program.slots]
    counts: dict[tuple[int, ...], int] = {}
    for each in entries:
        if each is not entry and [slot.source for slot in each.program.slots] != sources:
            continue
        for values, seen in list(each.seen.items()):
            if seen.calls and (each is entry or admits(values)):
                point = tuple(values[place] for place in places.values())
                counts[point] = counts.get(point, 0) + seen.calls
    return Traffic(tuple(places), counts)


def most_general(entries: Sequence[Entry]) -> Entry:
    """Return the entry with most symbols, and among those the one with most calls.

    Raises:
        InputError: there is none.
    """
    if not entries:
        raise InputError(
            "there is no traced program yet: call the compiled function once, with any sizes"
        )

    def rank(entry: Entry) -> tuple[int, int]:
        return len(entry.program.positions), sum(seen.calls for seen in list(entry.seen.values()))

    return max(entries, key=rank)


def _numbered(entries: Sequence[Entry], number: int) -> Entry:
    if type(number) is not int:
        raise InputError(f"entry={number!r} must be the number of an entry")
    found = next((each for each in entries if each.number == number), None)
    if found is None:
        raise InputError(
            f"there is no entry {number}; there are "
            f"{', '.join(str(e.number) for e in entries) or 'none'}"
        )
    return found
