"""Dispatch trees as records: drawn with the calls that passed, and a tree alone as a space."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from guards.dispatch.outline import Outline, outline
from guards.dispatch.tree import Tree
from guards.facts.facts import Facts
from guards.sets.guard_set import GuardSet
from guards.terms.arithmetic import symbol
from guards.terms.tape import EXACT
from symshape.exploring.report_records import (
    BranchRecord,
    EntryRecord,
    PointRecord,
    SlotRecord,
    Space,
)
from symshape.frontends.exploration.origins import Origins
from symshape.frontends.exploration.spaces import SpaceMaker, linked, top_of


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
    slots = [_slot(name, [guard_set for guard_set, _ in pairs]) for name in names]
    common = (
        set.intersection(*({guard.term for guard in guard_set} for guard_set, _ in pairs))
        if pairs
        else set()
    )
    drawn = branch_record(outline(tree), [entry for _, entry in pairs], [])
    return Space("", [], slots, linked(common, names), maker.record(), found, [], drawn)


def _slot(name: str, guard_sets: Sequence[GuardSet]) -> SlotRecord:
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
