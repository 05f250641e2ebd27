"""Making a dispatch tree of records: choosing what to look at, so that most records are ruled out
by one look.

Exact values that many records ask are looked up in a table; ranges are searched by bisection;
records whose wide ranges overlap share a gate or a span.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any

from guards.dispatch.box import Box, Compiler
from guards.dispatch.nodes import LEAF, Gate, Leaf, Node, Path, Record, Span, Steps, Table, Verified
from guards.domains.interval_arithmetic import Pair
from guards.terms.term import Term, among

# a record that leaves something to test and whose range covers more open segments than this is wide
COVER = 32


def build(records: Sequence[Record], verified: Verified, compiler: Compiler) -> Node:
    """The node for records in order of priority, none of them empty."""
    if len(records) > LEAF:
        choice = _best_split(records, verified, compiler)
        if choice is not None:
            form, exact = choice
            if exact:
                return _build_table(form, records, verified, compiler)
            return _build_steps(form, records, verified, compiler)
    return Leaf(tuple(records), verified, compiler, max(LEAF, 2 * len(records)))


def _best_split(
    records: Sequence[Record], verified: Verified, compiler: Compiler
) -> tuple[Term, bool] | None:
    """The form that rules out the most records for a typical value, and whether by its exact
    values.
    """
    points: dict[Term, Counter[int]] = {}
    ranges: dict[Term, Counter[Pair]] = {}
    for record in records:
        for form, pair in record.box.limits.items():
            if form in verified:
                continue
            if pair[0] is not None and pair[0] == pair[1]:
                points.setdefault(form, Counter())[pair[0]] += 1
            ranges.setdefault(form, Counter())[pair] += 1
    best: tuple[float, Term, bool] | None = None
    for form, seen in ranges.items():
        cost = 0.0 if form in compiler.position else 0.25
        exact = points.get(form, Counter())
        constrained = exact.total()
        gain = constrained - constrained / len(exact) - cost if exact else 0.0
        if len(exact) > 1 and (best is None or gain > best[0]):
            best = gain, form, True
        if len(seen) > len(exact) and len(seen) > 1:
            gain = 0.8 * _gain_of_steps(seen) - cost  # a table needs no second copy of a record
            if best is None or gain > best[0]:
                best = gain, form, False
    return best[1:] if best is not None and best[0] >= 1 else None


def _gain_of_steps(seen: Counter[Pair]) -> float:
    """Return how many of the constrained records a typical segment rules out."""
    bounds = sorted(
        {
            b
            for low, high in seen
            for b in (low, None if high is None else high + 1)
            if b is not None
        }
    )
    covered = 0
    for (low, high), count in seen.items():
        start = 0 if low is None else bisect_right(bounds, low)
        stop = len(bounds) if high is None else bisect_right(bounds, high)
        covered += count * (stop - start + 1)
    return seen.total() - covered / (len(bounds) + 1)


def _build_table(
    form: Term, records: Sequence[Record], verified: Verified, compiler: Compiler
) -> Node:
    members = [record for record in records if record.points((form,)) is not None]
    forms = _key_forms(form, members, verified, compiler)
    within = verified | set(forms)
    groups: dict[Any, list[Record]] = {}
    for record in members:
        points = record.points(forms)
        assert points is not None
        groups.setdefault(points[0] if len(points) == 1 else points, []).append(record)
    branches = {key: build(group, within, compiler) for key, group in groups.items()}
    chosen = set(members)
    rest = [record for record in records if record not in chosen]
    node = build(rest, verified, compiler) if rest else None
    return Table(forms, branches, node, rest[0].priority if rest else 0, verified, compiler)


def _key_forms(
    form: Term, members: Sequence[Record], verified: Verified, compiler: Compiler
) -> tuple[Term, ...]:
    """Return ``form`` and further forms that all members fix, as long as each distinguishes more
    members.
    """
    chosen = [form]
    shared = [
        other
        for other in members[0].box.limits
        if other is not form and other not in verified and other in compiler.position
    ]
    shared = [other for other in shared if all(record.points((other,)) for record in members)]
    groups = len({record.points(chosen) for record in members})
    while shared and groups < len(members):
        counts = [len({record.points([*chosen, other]) for record in members}) for other in shared]
        most = max(counts)
        if most <= groups:
            break
        chosen.append(shared.pop(counts.index(most)))
        groups = most
    return tuple(chosen)


def _build_steps(
    form: Term, records: Sequence[Record], verified: Verified, compiler: Compiler
) -> Node:
    within = verified | {form}
    limits = {record: record.box.limits[form] for record in records if form in record.box.limits}
    bounds = sorted(
        {
            b
            for low, high in limits.values()
            for b in (low, None if high is None else high + 1)
            if b is not None
        }
    )
    members: list[list[Record]] = [[] for _ in range(len(bounds) + 1)]
    following = list(range(len(bounds) + 2))  # from each segment the next that is still open
    rest: list[Record] = []
    wide: list[Record] = []
    for record in records:
        if record not in limits:
            rest.append(record)
            continue
        low, high = limits[record]
        start = 0 if low is None else bisect_right(bounds, low)
        stop = len(bounds) if high is None else bisect_right(bounds, high)
        certain = record.certain(within)  # what it covers is open to nobody behind it
        covered: list[int] = []
        index = _open_from(following, start)
        while index <= stop and (certain or len(covered) <= COVER):
            covered.append(index)
            index = _open_from(following, index + 1)
        if len(covered) > COVER and not certain:
            shared = _shared(list(limits), within)
            if shared is not None:
                return _build_gate(shared, limits, records, verified, compiler)
            wide.append(record)
            continue
        for index in covered:
            members[index].append(record)
            if certain:
                following[index] = index + 1
    made: dict[tuple[int, ...], Node] = {}
    branches: list[Node | None] = []
    for group in members:
        key = tuple(record.priority for record in group)
        if group and key not in made:
            made[key] = build(group, within, compiler)
        branches.append(made[key] if group else None)
    node = _build_rest(form, wide, rest, verified, compiler)
    first = min([record.priority for record in (*wide[:1], *rest[:1])], default=0)
    if not made and node is not None:
        return node
    return Steps(form, bounds, branches, node, first, verified, compiler)


def _build_rest(
    form: Term, wide: list[Record], rest: list[Record], verified: Verified, compiler: Compiler
) -> Node | None:
    """The node for records with wide ranges of a form, and for those that it does not constrain."""
    if len(wide) <= LEAF:
        together = sorted([*wide, *rest], key=lambda record: record.priority)
        return build(together, verified, compiler) if together else None
    within = verified | {form}
    ranges = [record.box.limits[form] for record in wide]
    bounds = sorted(
        {
            b
            for low, high in ranges
            for b in (low, None if high is None else high + 1)
            if b is not None
        }
    )
    count = len(bounds) + 1
    blocks: dict[int, list[Record]] = {}  # block 1 is everything, 2*b and 2*b + 1 the halves of b
    for record, (low, high) in zip(wide, ranges, strict=True):
        start = count + (0 if low is None else bisect_right(bounds, low))
        stop = count + (len(bounds) if high is None else bisect_right(bounds, high)) + 1
        while start < stop:
            if start & 1:
                blocks.setdefault(start, []).append(record)
                start += 1
            if stop & 1:
                stop -= 1
                blocks.setdefault(stop, []).append(record)
            start, stop = start >> 1, stop >> 1
    found = {
        block: (group[0].priority, build(group, within, compiler).find)
        for block, group in blocks.items()
    }
    paths: list[Path] = []
    for segment in range(count, 2 * count):
        around = [segment >> level for level in range(segment.bit_length())]
        paths.append(
            tuple(sorted((found[block] for block in around if block in found), key=itemgetter(0)))
        )
    node = build(rest, verified, compiler) if rest else None
    records = tuple(sorted([*wide, *rest], key=lambda record: record.priority))
    first = rest[0].priority if rest else 0
    return Span(form, records, (bounds, paths), node, first, 0, verified, compiler)


def _shared(records: Sequence[Record], verified: Verified) -> Box | None:
    """Return the limits and conditions that all records share and that are not verified yet; None
    if there are none.
    """
    limits = {form: pair for form, pair in records[0].box.limits.items() if form not in verified}
    conditions = [term for term in records[0].box.rest if term not in verified]
    for record in records:
        limits = {
            form: pair for form, pair in limits.items() if record.box.limits.get(form) == pair
        }
        conditions = [term for term in conditions if among(term, record.box.rest)]
        if not limits and not conditions:
            return None
    return Box(limits, tuple(conditions), ())


def _build_gate(
    shared: Box,
    members: Collection[Record],
    records: Sequence[Record],
    verified: Verified,
    compiler: Compiler,
) -> Node:
    within = verified.union(shared.limits, shared.rest)
    branch = build([record for record in records if record in members], within, compiler)
    rest = [record for record in records if record not in members]
    node = build(rest, verified, compiler) if rest else None
    return Gate(shared, branch, node, rest[0].priority if rest else 0, verified, compiler)


def _open_from(following: list[int], index: int) -> int:
    """The first open segment from ``index`` on; paths are shortened on the way."""
    last = index
    while following[last] != last:
        last = following[last]
    while following[index] != last:
        following[index], index = last, following[index]
    return last
