"""The sizes that a compiled function has seen, as traffic for the planner."""

from __future__ import annotations

from collections.abc import Sequence

from guards.sets.codegen import compile_check
from symshape.errors import InputError
from symshape.graph.program import slot_names
from symshape.planning.traffic import Traffic
from symshape.runtime.entry import Entry

__all__ = ["most_general", "traffic_of"]


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
    found = next((each for each in entries if each.number == number), None)
    if found is None:
        raise InputError(
            f"there is no entry {number}; there are "
            f"{', '.join(str(e.number) for e in entries) or 'none'}"
        )
    return found
