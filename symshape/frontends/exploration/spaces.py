"""Guard sets and families of entries as spaces: the integers that a reader may change, and the
guards on them.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import attrs

from guards.asking.ladder import Effort
from guards.dispatch.outline import Outline, outline
from guards.dispatch.tree import Tree
from guards.domains.interval_arithmetic import Pair
from guards.facts.facts import Facts
from guards.regions.minimising import needed
from guards.regions.satisfiability import implied
from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet
from guards.sets.origin import DECLARED, Origin
from guards.sets.sources import Source, spelled
from guards.terms import arithmetic
from guards.terms.arithmetic import symbol
from guards.terms.tape import EXACT, Tape
from guards.terms.term import Op, Term
from symshape.exploring.report_records import (
    BranchRecord,
    EntryRecord,
    GuardRecord,
    OriginRecord,
    PointRecord,
    SlotRecord,
    Space,
    TapeRecord,
)
from symshape.graph.program import Program, given_name

# -- The lines of the user's program that a report refers to, each once, with the lines around it.
_AROUND = 2  # lines shown before and after the line itself
_LONGEST = 400  # characters of a line


class Origins:
    """A collector of origins.

    Attributes:
        records: the records so far.
    """

    def __init__(self) -> None:
        self.records: list[OriginRecord] = []
        self._positions: dict[Origin, int] = {}

    def add(self, origin: Origin | None, *, excerpt: bool = True) -> int | None:
        """Return the position of an origin among the records; None for no origin."""
        if origin is None:
            return None
        found = self._positions.get(origin)
        if found is None:
            found = self._positions[origin] = len(self.records)
            place, text, asked = origin.cells
            lines = _excerpt(origin) if excerpt else []
            self.records.append(OriginRecord(place, text[:_LONGEST], asked, lines, origin.line))
        elif excerpt and not self.records[found].excerpt:
            self.records[found] = attrs.evolve(self.records[found], excerpt=_excerpt(origin))
        return found


def _excerpt(origin: Origin) -> list[tuple[int, str]]:
    if not origin.file:
        return []
    first = max(1, origin.line - _AROUND)
    numbers = range(first, origin.line + _AROUND + 1)
    lines = [
        (number, linecache.getline(origin.file, number).rstrip()[:_LONGEST]) for number in numbers
    ]
    return lines if any(text for _, text in lines) else []


_KINDS = {"declared": "declared", "static": "static", "layout": "layout"}
_EXPLAINED = 24  # guards of a set, at most, for which it is proven which others imply them


class SpaceMaker:
    """A maker of one space: slots by name, guards on one tape."""

    def __init__(self, names: Sequence[str], origins: Origins) -> None:
        self.names = tuple(names)
        self.tape = Tape(self.names)
        self._origins = origins

    def guards(
        self, guard_set: GuardSet, words: Mapping[str, str], shown: Mapping[str, str]
    ) -> list[GuardRecord]:
        """Return the conditions of a set; ``words`` and ``shown`` spell its symbols in full and in
        short.
        """
        return [self._guard(guard, words, shown) for guard in guard_set.conditions]

    def _guard(
        self, guard: Guard, words: Mapping[str, str], shown: Mapping[str, str]
    ) -> GuardRecord:
        origin = guard.origin
        kind = (
            "range"
            if origin == DECLARED
            else _KINDS.get(origin.rule, "guard")
            if origin
            else "guard"
        )
        return GuardRecord(
            text=guard.text(shown),
            words=guard.text(words),
            register=self.tape.add(guard.term),
            kind=kind,
            origin=None if kind == "range" else self._origins.add(origin),
            slots=[
                index for index, name in enumerate(self.names) if symbol(name) in guard.term.symbols
            ],
        )

    def record(self) -> TapeRecord:
        """Return the tape, once everything is on it."""
        return TapeRecord(self.tape.steps, self.tape.exact_up_to())


def top_of(start: int, high: int | None, seen: Iterable[int] = ()) -> int:
    """Return the end of a slider: a power of two beyond all values that came or are allowed.

    >>> top_of(12, None), top_of(12, 4096), top_of(0, None, [5, 1000])
    (16, 8192, 1024)
    """
    most = max([start, *seen, 8])
    if high is not None and high < EXACT // 4:
        most = max(most, high)
    return 1 << most.bit_length() if most & (most - 1) else 2 * most


def linked(guards: Iterable[Term], names: Sequence[str]) -> list[list[int]]:
    """Return the groups of slots that these conditions make equal.

    >>> from guards import parse
    >>> linked([parse("a == b"), parse("c == b"), parse("a > 2")], ["a", "b", "c", "d"])
    [[0, 1, 2]]
    """
    positions = {symbol(name): index for index, name in enumerate(names)}
    group = {index: {index} for index in range(len(names))}
    for term in guards:
        pair = _equal_symbols(term)
        if pair is not None and pair[0] in positions and pair[1] in positions:
            both = group[positions[pair[0]]] | group[positions[pair[1]]]
            for index in both:
                group[index] = both
    return [
        list(found)
        for found in sorted({tuple(sorted(each)) for each in group.values() if len(each) > 1})
    ]


def linked_in_all(conditions: Iterable[Sequence[Term]], names: Sequence[str]) -> list[list[int]]:
    """Return the groups of slots that every one of these sets of conditions makes equal: some set
    as symbols, another perhaps by one number.

    >>> from guards import parse
    >>> static, general, other = (
    ...     [parse("a == 4"), parse("b == 4")],
    ...     [parse("a == b"), parse("c == b")],
    ...     [parse("a == b"), parse("c > 2")],
    ... )
    >>> linked_in_all([static, general], ["a", "b", "c"])
    [[0, 1]]
    >>> linked_in_all([general, other], ["a", "b", "c"])
    [[0, 1]]
    """
    keys: list[list[tuple[str, int]]] = [[] for _ in names]
    once = set[tuple[int, int]]()
    for terms in conditions:
        groups = linked(terms, names)
        once |= {pair for group in groups for pair in combinations(group, 2)}
        first = {index: group[0] for group in groups for index in group}
        values = dict(pair for term in terms if (pair := fixed_value(term)) is not None)
        known = {first.get(i, i): values[name] for i, name in enumerate(names) if name in values}
        for index, key in enumerate(keys):
            place = first.get(index, index)
            key.append(("value", known[place]) if place in known else ("slot", place))
    alike: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for index, each in enumerate(keys):
        alike.setdefault(tuple(each), []).append(index)
    return [group for group in alike.values() if once.intersection(combinations(group, 2))]


def fixed_value(term: Term) -> tuple[str, int] | None:
    """Return the symbol and the number of a condition that fixes one; else None.

    >>> from guards import parse
    >>> fixed_value(parse("a == 4")), fixed_value(parse("a == b"))
    (('a', 4), None)
    """
    if term.op is not Op.EQ:
        return None
    constant, items = arithmetic.split(term.args[0])
    if len(items) != 1 or items[0][0].op is not Op.SYMBOL or abs(items[0][1]) != 1:
        return None
    return items[0][0].name, -constant * items[0][1]


def _equal_symbols(term: Term) -> tuple[Term, Term] | None:
    if term.op is not Op.EQ:
        return None
    constant, items = arithmetic.split(term.args[0])
    if constant or len(items) != 2 or {factor for _, factor in items} != {1, -1}:
        return None
    first, second = (monomial for monomial, _ in items)
    return (first, second) if first.op is second.op is Op.SYMBOL else None


# -- a guard set alone -----------------------------------------------------------------------------


def space_of_guards(
    guard_set: GuardSet, sources: Mapping[str, Source | str], origins: Origins
) -> Space:
    """Return the space of a guard set: its symbols, guards implied by others, and whether any sizes
    satisfy it.
    """
    maker = SpaceMaker(guard_set.symbols, origins)
    words = spelled(sources)
    start = _example(guard_set)
    slots = [
        _slot(name, words.get(name, name), limits, start.get(name, 0), _inside(guard_set, name))
        for name, limits in guard_set.ranges.items()
    ]
    records, verdict = _studied(guard_set, maker.guards(guard_set, words, {}))
    entry = EntryRecord("the guards", records)
    return Space(
        "",
        [],
        slots,
        linked([g.term for g in guard_set], maker.names),
        maker.record(),
        [entry],
        [],
        None,
        [],
        verdict,
    )


def _example(guard_set: GuardSet) -> dict[str, int]:
    found = guard_set.sample(1)
    return found[0] if found else {}


def _inside(guard_set: GuardSet, name: str) -> Pair:
    """Return the range of a symbol as its guards narrow it."""
    ranges = {symbol(each): limits for each, limits in guard_set.ranges.items()}
    interval = Facts.make(ranges, [guard.term for guard in guard_set]).interval(symbol(name))
    return interval.lo, interval.hi


def _slot(name: str, source: str, limits: Pair, start: int, inside: Pair) -> SlotRecord:
    low, high = limits
    top = top_of(start, inside[1] if high is None else high)
    return SlotRecord(
        name,
        source,
        low,
        high,
        start,
        top,
        given=given_name(symbol(name)) if source != name else "",
    )


def _studied(guard_set: GuardSet, records: list[GuardRecord]) -> tuple[list[GuardRecord], str]:
    """Return the records with what can be proven of the guards: which others imply a guard, and a
    contradiction.
    """
    conflict = guard_set.core()
    if conflict is not None:
        contradicting = {guard.term for guard in conflict.conditions}
        note = "contradicts the others that are marked so"
        marked = [
            attrs.evolve(record, note=note) if guard.term in contradicting else record
            for record, guard in zip(records, guard_set.conditions, strict=True)
        ]
        return (
            marked,
            (
                "no sizes satisfy all of these guards: "
                f"{' and '.join(g.text() for g in conflict.conditions)}"
            ),
        )
    terms = [guard.term for guard in guard_set]
    if not 1 < len(terms) <= _EXPLAINED:
        return records, ""
    kept = set(needed(terms, guard_set.ranges, Effort.CHEAP))
    offset = len(guard_set.conditions) - len(terms)
    found = list(records)
    for index in range(len(terms)):
        if index not in kept:
            reasons = _reasons(index, sorted(kept), terms, guard_set.ranges)
            note = "implied by others" if reasons else "implied by the ranges"
            found[offset + index] = attrs.evolve(
                found[offset + index], note=note, implied_by=[offset + each for each in reasons]
            )
    return found, ""


def _reasons(
    index: int, kept: list[int], terms: Sequence[Term], ranges: Mapping[str, Pair]
) -> list[int]:
    """Return few of the kept guards that imply the one at ``index``: guards that are not needed are
    left out.
    """
    left = list(kept)
    for each in kept:
        fewer = [other for other in left if other != each]
        if implied([terms[other] for other in fewer], ranges, terms[index]).satisfiable is False:
            left = fewer
    return left


# -- a trace ---------------------------------------------------------------------------------------


def space_of_program(program: Program, origins: Origins, number: int) -> Space:
    """Return the space of one program: the symbols that its arguments give, and its guards."""
    backed = [each for each in program.symbols.values() if each.backed]
    sources = {each.name: " = ".join(source.text() for source in each.sources) for each in backed}
    words = {each.name: given_name(each.term) or each.sources[0].text() for each in backed}
    maker = SpaceMaker([each.name for each in backed], origins)
    guards = GuardSet(
        program.guards.guards, {n: r for n, r in program.guards.ranges.items() if n in maker.names}
    )
    slots = [
        _slot(
            each.name,
            sources[each.name],
            guards.ranges.get(each.name, (0, None)),
            each.hint or 0,
            _inside(guards, each.name),
        )
        for each in backed
    ]
    entry = EntryRecord(program.name, maker.guards(guards, words, {}), number)
    links = linked([guard.term for guard in guards], maker.names)
    fixed = [
        f"{slot.source.text()} = {slot.term}" for slot in program.slots if slot.term.op is Op.CONST
    ]
    return Space("", fixed, slots, links, maker.record(), [entry], [])


# -- Dispatch trees as records: drawn with the calls that passed, and a tree alone as a space.
def branch_record(
    node: Outline, entries: Sequence[object], points: Sequence[PointRecord], label: str = ""
) -> BranchRecord:
    """Return a node with the nodes below it, and how many of the calls at ``points`` pass each."""
    positions = {id(entry): at for at, entry in enumerate(entries)}
    here = [positions[id(entry)] for entry in node.entries]
    passing: list[list[PointRecord]] = [[] for _ in node.branches]
    for point in points:
        if point.entry is not None:
            chosen = node.chosen(tuple(int(value) for value in point.values), entries[point.entry])
            if chosen is not None:
                passing[chosen].append(point)
    below = [
        branch_record(child, entries, part, text)
        for (text, child), part in zip(node.branches, passing, strict=True)
    ]
    return BranchRecord(label, node.asks, here, sum(point.calls for point in points), below)


def space_of_tree(tree: Tree[Any], origins: Origins) -> Space:
    """Return the space of a dispatch tree alone; its entries are named by their text."""
    names = tree.slots
    maker = SpaceMaker(names, origins)
    pairs = list(tree)
    found = [EntryRecord(str(entry), maker.guards(guard_set, {}, {})) for guard_set, entry in pairs]
    slots = [_tree_slot(name, [guard_set for guard_set, _ in pairs]) for name in names]
    common = (
        set.intersection(*({guard.term for guard in guard_set} for guard_set, _ in pairs))
        if pairs
        else set()
    )
    drawn = branch_record(outline(tree), [entry for _, entry in pairs], [])
    return Space("", [], slots, linked(common, names), maker.record(), found, [], drawn)


def _tree_slot(name: str, guard_sets: Sequence[GuardSet]) -> SlotRecord:
    """Return a slot whose slider reaches every number that the guard sets compare it with."""
    ranges = [guard_set.ranges[name] for guard_set in guard_sets if name in guard_set.symbols]
    signed = any(low is None or low < 0 for low, _ in ranges)
    return SlotRecord(
        name, name, None if signed else 0, None, 1, top_of(1, None, _bounds(name, guard_sets))
    )


def _bounds(name: str, guard_sets: Sequence[GuardSet]) -> Iterator[int]:
    """Yield the ends of the ranges that conditions on this symbol alone give it."""
    for guard_set in guard_sets:
        if name in guard_set.symbols:
            alone = [guard.term for guard in guard_set if guard.term.symbols == {symbol(name)}]
            interval = Facts.make({symbol(name): guard_set.ranges[name]}, alone).interval(
                symbol(name)
            )
            yield from (
                end for end in (interval.lo, interval.hi) if end is not None and 0 <= end < EXACT
            )
