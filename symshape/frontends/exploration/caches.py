"""A compiled function as a report: a space for each structure of arguments that it was called
with.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from guards.dispatch.explanation import distinguish
from guards.dispatch.outline import outline
from guards.terms import fold
from guards.terms.arithmetic import symbol
from guards.terms.tape import number
from guards.terms.term import Op
from symshape.exploring.report_records import (
    EntryRecord,
    MomentRecord,
    PointRecord,
    ProgramRecord,
    Report,
    SlotRecord,
    Space,
)
from symshape.frontends.exploration.programs import of_entry, program_record
from symshape.frontends.exploration.spaces import (
    Origins,
    SpaceMaker,
    branch_record,
    linked_in_all,
    top_of,
)
from symshape.frontends.reporting import serving_of
from symshape.frontends.stats import Stats
from symshape.graph.program import Program, given_name, limits_of, slot_names
from symshape.runtime.cache import Branch, EntryCache
from symshape.runtime.entry import Entry
from symshape.runtime.families import Family
from symshape.runtime.history import Moment

_MOST_POINTS = 2000
_COMPARING = 0.5  # seconds of a processor for all sentences about two entries
_MOST_STEPS = 6000  # ops of all programs together that are shown


def cache_report(cache: EntryCache, stats: Stats, name: str, *, short: bool = False) -> Report:
    """Return the report of a compiled function; a ``short`` one leaves out parts that tables do not
    show.
    """
    origins = Origins()
    reader = _CacheReader(cache, origins, not short)
    reader.read()
    facts = [
        ("entries", str(stats.entries)),
        ("calls", str(stats.calls)),
        ("hits", str(stats.hits)),
        ("traces", str(stats.traces)),
        ("fallbacks", str(stats.fallbacks)),
        ("evictions", str(stats.evictions)),
        ("spent tracing", f"{stats.trace_ms:.0f} ms"),
    ]
    title = f"The compiled function {name}"
    moments = _moments(cache)
    return Report(title, "cache", facts, origins.records, reader.spaces, reader.programs, moments)


def _moments(cache: EntryCache) -> list[MomentRecord]:
    """Return the history, with the sizes in the caller's words; a moment of new sizes names the
    runner, too.
    """
    noted = cache.history.moments()
    start = noted[0].at if noted else 0.0
    found = sorted(noted, key=lambda each: (each.call, _RANKS.get(each.kind, 4)))
    came = {_event(each) for each in found if each.kind == "new sizes"}
    chosen = {_event(each): _told(each) for each in found if each.kind == "bucket chosen"}
    return [
        MomentRecord(
            call=each.call,
            seconds=round(each.at - start, 3),
            kind=each.kind,
            entry=each.entry,
            sizes=_sizes(each),
            text=chosen.get(_event(each), "") if each.kind == "new sizes" else _told(each),
            milliseconds=round(each.milliseconds or 0, 1) or None,
        )
        for each in found
        if each.kind != "bucket chosen" or _event(each) not in came
    ]


_RANKS = {
    "trace": 0,
    "new sizes": 1,
    "evicted": 2,
    "dropped": 2,
    "bucket made": 2,
    "bucket chosen": 3,
}
"""The order of the moments in one call: moments that are recorded late, while a device works, are
shown in place.
"""


def _event(moment: Moment) -> tuple[int, int | None, tuple[int, ...]]:
    return moment.call, moment.entry, moment.values


def _sizes(moment: Moment) -> str:
    """Return the sizes of the call in the user's names, or those that a moment without a call is
    about.
    """
    pairs = zip(moment.slots, moment.values, strict=False)
    named = dict.fromkeys(
        f"{given_name(slot.term) or slot.source.text()}={value}" for slot, value in pairs
    )
    if (
        moment.values and not named
    ):  # the call was not traced, so nobody knows where these were read
        return f"its integers, in order: {', '.join(map(str, moment.values))}"
    return ", ".join(named) or moment.sizes


def _told(moment: Moment) -> str:
    """Return the reason of a moment and, for a call, the sizes of its bucket."""
    return ": ".join(filter(None, (moment.text, moment.sizes if moment.values else "")))


class _CacheReader:
    """A reader of a cache's spaces and programs."""

    def __init__(self, cache: EntryCache, origins: Origins, detailed: bool) -> None:
        self._cache = cache
        self._origins = origins
        self._detailed = detailed
        self._steps_left = _MOST_STEPS
        self._until = time.thread_time() + (_COMPARING if detailed else 0)
        self.programs: list[ProgramRecord] = []
        self.spaces: list[Space] = []

    def read(self) -> None:
        """Fill ``spaces`` and ``programs``, the structure with most calls first."""
        places = [
            (branch, family)
            for branch in self._cache.branches
            for family in branch.families.values()
        ]
        described = [_structure(family.entries[0].program) for _, family in places]
        branches = list(self._cache.branches)
        for (branch, family), structure in zip(places, described, strict=True):
            different = [
                line for line in structure if any(line not in other for other in described)
            ]
            if len(branches) > 1:
                different.append(_state(branches, branch))
            self.spaces.append(
                self._space(family, structure, ", ".join(different) if len(places) > 1 else "")
            )
        self.spaces.sort(key=lambda space: -sum(entry.calls for entry in space.entries))

    def _space(self, family: Family[Entry], structure: list[str], label: str) -> Space:
        entries = family.entries
        names = slot_names(len(entries[0].program.slots))
        maker = SpaceMaker(names, self._origins)
        general = max(entries, key=lambda each: len(each.program.positions))
        words = spelled_slots(general.program)
        points, seen = _points(entries)
        records = [self._entry(entry, maker, words) for entry in entries]
        slots = [_slot(index, entries, general, maker, seen) for index in range(len(names))]
        links = linked_in_all([[guard.term for guard in each.guards] for each in entries], names)
        drawn = branch_record(outline(family.tree, words), entries, points)
        return Space(
            label,
            structure,
            slots,
            links,
            maker.record(),
            records,
            points,
            drawn,
            self._comparisons(entries, words),
        )

    def _entry(self, entry: Entry, maker: SpaceMaker, words: dict[str, str]) -> EntryRecord:
        program = entry.program
        calls = sum(each.calls for each in list(entry.seen.values()))
        number = len(program.graph.steps)
        whole = self._detailed and number <= self._steps_left
        self._steps_left -= number if whole else 0
        after = of_entry(entry) if whole else None
        self._steps_left -= 0 if after is None else len(after.steps)
        self.programs.append(
            program_record(program, self._origins, program.positions, after, whole=whole)
        )
        return EntryRecord(
            label=f"entry {entry.number}",
            guards=maker.guards(entry.guards, words, words),  # each entry names its symbols anew
            program=len(self.programs) - 1,
            calls=calls,
            runner=entry.runner.describe(),
            serving=serving_of(entry),
        )

    def _comparisons(
        self, entries: Sequence[Entry], words: dict[str, str]
    ) -> list[tuple[int, int, str]]:
        found: list[tuple[int, int, str]] = []
        for second in range(len(entries) - 1, 0, -1):
            for first in range(second - 1, -1, -1):
                if time.thread_time() > self._until:
                    return found
                told = distinguish(entries[first].guards, entries[second].guards, words).text
                found.append((first, second, told))
        return found


def _slot(
    index: int, entries: Sequence[Entry], general: Entry, maker: SpaceMaker, seen: list[set[int]]
) -> SlotRecord:
    terms = [entry.program.slots[index].term for entry in entries]
    slot = general.program.slots[index]
    low, high = limits_of(slot.source)
    fixed = slot.term.op is Op.CONST and all(term is slot.term for term in terms)
    derived = None
    first = {
        symbol(name): symbol(f"v{position}") for name, position in general.program.positions.items()
    }
    free = slot.term.op is Op.CONST or first.get(slot.term) is symbol(f"v{index}")
    if not free and all(part in first for part in slot.term.symbols):
        derived = maker.tape.add(fold.substitute(slot.term, first))
    start = _example(general.program, index)
    top = top_of(start, high, seen[index])
    given = given_name(slot.term) if free and not fixed else ""
    return SlotRecord(f"v{index}", slot.source.text(), low, high, start, top, fixed, derived, given)


def spelled_slots(program: Program) -> dict[str, str]:
    """Return how people read each slot: the user's name for a size where it is first read, and the
    source elsewhere.

    A second place of one name stays a source, so that ``batch == mask.size(0)`` says which sizes
    must agree.
    """
    first = {position: given_name(symbol(name)) for name, position in program.positions.items()}
    texts = [first.get(at) or slot.source.text() for at, slot in enumerate(program.slots)]
    return dict(zip(slot_names(len(texts)), texts, strict=True))


def _example(program: Program, index: int) -> int:
    """Return the value that a slot had in the traced call."""
    hints = {name: each.hint for name, each in program.symbols.items() if each.hint is not None}
    found: int = fold.evaluate(program.slots[index].term, hints)
    return found


def _points(entries: Sequence[Entry]) -> tuple[list[PointRecord], list[set[int]]]:
    """Return how often each tuple of integers came, the most frequent first; and for each slot the
    values that came.
    """
    rows = [
        (v, s.calls, at)
        for at, entry in enumerate(entries)
        for v, s in list(entry.seen.items())
        if s.calls
    ]
    rows.sort(key=lambda row: -row[1])
    seen: list[set[int]] = [set() for _ in entries[0].program.slots]
    for values, _, _ in rows:
        for found, value in zip(seen, values, strict=True):
            found.add(value)
    return [
        PointRecord([number(value) for value in v], calls, at)
        for v, calls, at in rows[:_MOST_POINTS]
    ], seen


def _structure(program: Program) -> list[str]:
    """Return the arguments and modes of a call, in words."""
    lines = [str(program.modes)] if str(program.modes) else []
    for path, key in zip(program.call.paths, program.call.keys, strict=True):
        lines.append(f"{path}: {key}")
    return lines


def _state(branches: Sequence[Branch], branch: Branch) -> str:
    return f"state {branches.index(branch) + 1} of {len(branches)} that the function was found in"
