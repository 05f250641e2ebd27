"""The nodes of a dispatch tree: immutable, so that readers need no lock and an insertion copies one path.

``find(values)`` answers the record of highest priority whose box holds.  A node may have a ``rest`` beside its
branches: the records that do not constrain what the node looks at.  They are searched only where they could win.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import Any

from guards.dispatch.box import Box, Compiler, Getter, Test, Values
from guards.domains.interval_arithmetic import Pair
from guards.sets.guard_set import GuardSet
from guards.terms.term import Term

LEAF = 4  # a leaf with more candidates than this is split when something tells them apart
COVER = 32  # a record that leaves something to test and whose range covers more open segments than this is wide

Verified = frozenset[Term]
_NOTHING: Verified = frozenset()


class Record:
    """One guard set in a tree and what it leads to.

    Attributes:
        entry: what a look-up answers.
        priority: the lowest number wins.
        guard_set: the condition.
        box: the condition as a box.
    """

    __slots__ = ("_tests", "box", "entry", "guard_set", "priority")

    def __init__(self, entry: Any, priority: int, guard_set: GuardSet, box: Box) -> None:
        self.entry = entry
        self.priority = priority
        self.guard_set = guard_set
        self.box = box
        self._tests: dict[Verified, Test | None] = {}

    def test(self, verified: Verified, compiler: Compiler) -> Test | None:
        """The test of what is not verified yet; None when nothing is left."""
        if verified not in self._tests:
            self._tests[verified] = compiler.test(self.box, verified)
        return self._tests[verified]

    def certain(self, verified: Verified) -> bool:
        """Whether nothing is left to test."""
        return self.box.limits.keys() <= verified and verified.issuperset(self.box.rest)

    def points(self, forms: Sequence[Term]) -> tuple[int, ...] | None:
        """The value that each form must have; None unless each must have one."""
        found = []
        for form in forms:
            low, high = self.box.limits.get(form, (None, None))
            if low is None or low != high:
                return None
            found.append(low)
        return tuple(found)


class Leaf:
    """Candidates, tried in order of priority."""

    __slots__ = ("candidates", "closed", "find", "limit", "records", "verified")

    def __init__(self, records: tuple[Record, ...], verified: Verified, compiler: Compiler, limit: int = LEAF) -> None:
        self.verified = verified
        self.limit = limit
        kept: list[Record] = []
        self.closed = False
        for record in records:
            kept.append(record)
            if record.certain(verified):  # nothing behind it can be reached
                self.closed = True
                break
        self.records = tuple(kept)
        self.find = _leaf_search([(record.test(verified, compiler), record) for record in kept])

    def insert(self, record: Record, compiler: Compiler) -> Node:
        """This node and one more record, of lower priority than all here."""
        if self.closed:
            return self
        records = (*self.records, record)
        if len(records) > self.limit:
            return build(records, self.verified, compiler)
        return Leaf(records, self.verified, compiler, self.limit)


def _leaf_search(candidates: list[tuple[Test | None, Record]]) -> Callable[[Values], Record | None]:
    if not candidates:
        return lambda values: None
    if len(candidates) == 1:
        test, record = candidates[0]
        if test is None:
            return lambda values: record
        return lambda values: record if test(values) else None
    pairs = tuple((test or _always, record) for test, record in candidates)

    def find(values: Values) -> Record | None:
        for test, record in pairs:
            if test(values):
                return record
        return None

    return find


def _always(values: Values) -> bool:
    return True


class Table:
    """Branches by the exact values of some forms."""

    __slots__ = ("branches", "closed", "find", "first", "forms", "rest", "verified", "within")

    def __init__(
        self,
        forms: tuple[Term, ...],
        branches: dict[Any, Node],
        rest: Node | None,
        first: int,
        verified: Verified,
        compiler: Compiler,
    ) -> None:
        self.closed = False
        self.forms = forms
        self.branches = branches
        self.rest = rest
        self.first = first  # the highest priority in the rest
        self.verified = verified
        self.within = verified | set(forms)
        self.find = _table_search(compiler.getter(forms), branches, rest, first)

    def insert(self, record: Record, compiler: Compiler) -> Node:
        """This node and one more record, of lower priority than all here."""
        points = record.points(self.forms)
        if points is None:
            if self.rest is None:
                rest, first = _leaf(record, self.verified, compiler), record.priority
            else:
                rest, first = self.rest.insert(record, compiler), self.first
                if rest is self.rest:
                    return self
            return Table(self.forms, self.branches, rest, first, self.verified, compiler)
        key = points[0] if len(points) == 1 else points
        branch = self.branches.get(key)
        made = _leaf(record, self.within, compiler) if branch is None else branch.insert(record, compiler)
        if made is branch:
            return self
        return Table(self.forms, {**self.branches, key: made}, self.rest, self.first, self.verified, compiler)


def _leaf(record: Record, verified: Verified, compiler: Compiler) -> Node:
    return Leaf((record,), verified, compiler)


class Gate:
    """One branch behind a test that all its records share: within it, fewer of them are uncertain."""

    __slots__ = ("branch", "closed", "find", "first", "rest", "shared", "verified", "within")

    def __init__(
        self, shared: Box, branch: Node, rest: Node | None, first: int, verified: Verified, compiler: Compiler
    ) -> None:
        self.closed = False
        self.shared = shared
        self.branch = branch
        self.rest = rest
        self.first = first
        self.verified = verified
        self.within = verified.union(shared.limits, shared.rest)
        test = compiler.test(shared, verified)
        assert test is not None
        self.find = _table_search(test, {True: branch}, rest, first)

    def insert(self, record: Record, compiler: Compiler) -> Node:
        """This node and one more record, of lower priority than all here."""
        limits, box = record.box.limits, self.shared
        if all(limits.get(f) == pair for f, pair in box.limits.items()) and set(record.box.rest).issuperset(box.rest):
            branch = self.branch.insert(record, compiler)
            if branch is self.branch:
                return self
            return Gate(box, branch, self.rest, self.first, self.verified, compiler)
        if self.rest is None:
            rest, first = _leaf(record, self.verified, compiler), record.priority
        else:
            rest, first = self.rest.insert(record, compiler), self.first
            if rest is self.rest:
                return self
        return Gate(box, self.branch, rest, first, self.verified, compiler)


def _table_search(
    key: Getter, branches: dict[Any, Node], rest: Node | None, first: int
) -> Callable[[Values], Record | None]:
    searches = {value: branch.find for value, branch in branches.items()}
    get = searches.get
    if rest is None:

        def find_here(values: Values) -> Record | None:
            search = get(key(values))
            return search(values) if search is not None else None

        return find_here
    search_rest = rest.find

    def find(values: Values) -> Record | None:
        search = get(key(values))
        found = search(values) if search is not None else None
        if found is None:
            return search_rest(values)
        if found.priority < first:
            return found
        return _better(found, search_rest(values))

    return find


def _better(found: Record, other: Record | None) -> Record:
    return found if other is None or found.priority < other.priority else other


class Steps:
    """Branches by the segment in which the value of one form lies.

    Segment ``i`` reaches from ``bounds[i - 1]`` to just below ``bounds[i]``.
    """

    __slots__ = ("bounds", "branches", "closed", "find", "first", "form", "rest", "verified", "within")

    def __init__(
        self,
        form: Term,
        bounds: list[int],
        branches: list[Node | None],
        rest: Node | None,
        first: int,
        verified: Verified,
        compiler: Compiler,
    ) -> None:
        self.closed = False
        self.form = form
        self.bounds = bounds
        self.branches = branches
        self.rest = rest
        self.first = first
        self.verified = verified
        self.within = verified | {form}
        self.find = _steps_search(compiler.getter((form,)), bounds, branches, rest, first)

    def insert(self, record: Record, compiler: Compiler) -> Node:
        """This node and one more record, of lower priority than all here."""
        limits = record.box.limits.get(self.form)
        if limits is not None:
            bounds, branches = self.bounds[:], self.branches[:]
            start, stop = _cut(bounds, branches, limits)
            open_ones = [i for i in range(start, stop) if (branch := branches[i]) is None or not branch.closed]
            if len(open_ones) <= COVER or record.certain(self.within):
                if not open_ones:
                    return self
                alone = _leaf(record, self.within, compiler)
                for index in open_ones:
                    branch = branches[index]
                    branches[index] = alone if branch is None else branch.insert(record, compiler)
                return Steps(self.form, bounds, branches, self.rest, self.first, self.verified, compiler)
        if self.rest is None:
            rest, first = _leaf(record, self.verified, compiler), record.priority
        else:
            rest, first = self.rest.insert(record, compiler), self.first
            if rest is self.rest:
                return self
        return Steps(self.form, self.bounds, self.branches, rest, first, self.verified, compiler)


def _cut(bounds: list[int], branches: list[Any], limits: Pair) -> tuple[int, int]:
    """Makes the ends of a range bounds of segments; answers the segments ``start`` to ``stop - 1`` that it covers."""
    low, high = limits
    start, stop = 0, len(branches)
    if low is not None:
        start = bisect_right(bounds, low)
        if not start or bounds[start - 1] != low:
            bounds.insert(start, low)
            branches.insert(start, branches[start])
            start += 1
        stop = len(branches)
    if high is not None:
        stop = bisect_right(bounds, high + 1)
        if not stop or bounds[stop - 1] != high + 1:
            bounds.insert(stop, high + 1)
            branches.insert(stop, branches[stop])
            stop += 1
    return start, stop


def _steps_search(
    form: Getter, bounds: list[int], branches: list[Node | None], rest: Node | None, first: int
) -> Callable[[Values], Record | None]:
    searches = [_nowhere if branch is None else branch.find for branch in branches]
    if rest is None:

        def find_here(values: Values) -> Record | None:
            return searches[bisect_right(bounds, form(values))](values)

        return find_here
    search_rest = rest.find

    def find(values: Values) -> Record | None:
        found = searches[bisect_right(bounds, form(values))](values)
        if found is None:
            return search_rest(values)
        if found.priority < first:
            return found
        return _better(found, search_rest(values))

    return find


def _nowhere(values: Values) -> None:
    return None


class Span:
    """Wide ranges of one form that overlap: each is cut into few blocks of segments, one inside the other by halves.

    A value lies in one block of each size; so as many nodes are searched as there are sizes, the most promising first.
    What is inserted goes to the rest, until that is as large as what was there.
    """

    __slots__ = ("closed", "find", "first", "form", "inserted", "paths", "records", "rest", "verified")

    def __init__(
        self,
        form: Term,
        records: tuple[Record, ...],
        paths: tuple[list[int], list[_Path]],
        rest: Node | None,
        first: int,
        inserted: int,
        verified: Verified,
        compiler: Compiler,
    ) -> None:
        self.closed = False
        self.form = form
        self.records = records  # all that are here, in order of priority
        self.paths = paths
        self.rest = rest
        self.first = first
        self.inserted = inserted
        self.verified = verified
        self.find = _span_search(compiler.getter((form,)), *paths, rest, first)

    def insert(self, record: Record, compiler: Compiler) -> Node:
        """This node and one more record, of lower priority than all here."""
        records = (*self.records, record)
        if 2 * self.inserted > len(records):
            return build(records, self.verified, compiler)
        if self.rest is None:
            rest, first = _leaf(record, self.verified, compiler), record.priority
        else:
            rest, first = self.rest.insert(record, compiler), self.first
            if rest is self.rest:
                return self
        return Span(self.form, records, self.paths, rest, first, self.inserted + 1, self.verified, compiler)


_Path = tuple[tuple[int, Callable[[Values], Record | None]], ...]  # the nodes to search, each with its best priority


def _span_search(
    form: Getter, bounds: list[int], paths: list[_Path], rest: Node | None, first: int
) -> Callable[[Values], Record | None]:
    search_rest = _nowhere if rest is None else rest.find

    def find(values: Values) -> Record | None:
        found: Record | None = None
        for best, search in paths[bisect_right(bounds, form(values))]:
            if found is not None and found.priority < best:
                break
            other = search(values)
            if other is not None and (found is None or other.priority < found.priority):
                found = other
        if found is None:
            return search_rest(values)
        return found if found.priority < first else _better(found, search_rest(values))

    return find


Node = Leaf | Table | Gate | Steps | Span


# -- choosing what to look at -----------------------------------------------------------------------------------------


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


def _best_split(records: Sequence[Record], verified: Verified, compiler: Compiler) -> tuple[Term, bool] | None:
    """The form that rules out the most records for a typical value, and whether by its exact values."""
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
    """How many of the constrained records a typical segment rules out."""
    bounds = sorted({b for low, high in seen for b in (low, None if high is None else high + 1) if b is not None})
    covered = 0
    for (low, high), count in seen.items():
        start = 0 if low is None else bisect_right(bounds, low)
        stop = len(bounds) if high is None else bisect_right(bounds, high)
        covered += count * (stop - start + 1)
    return seen.total() - covered / (len(bounds) + 1)


def _build_table(form: Term, records: Sequence[Record], verified: Verified, compiler: Compiler) -> Node:
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


def _key_forms(form: Term, members: Sequence[Record], verified: Verified, compiler: Compiler) -> tuple[Term, ...]:
    """``form`` and further forms that all members fix, as long as they tell more members apart."""
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


def _build_steps(form: Term, records: Sequence[Record], verified: Verified, compiler: Compiler) -> Node:
    within = verified | {form}
    limits = {record: record.box.limits[form] for record in records if form in record.box.limits}
    bounds = sorted(
        {b for low, high in limits.values() for b in (low, None if high is None else high + 1) if b is not None}
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
    bounds = sorted({b for low, high in ranges for b in (low, None if high is None else high + 1) if b is not None})
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
    found = {block: (group[0].priority, build(group, within, compiler).find) for block, group in blocks.items()}
    paths: list[_Path] = []
    for segment in range(count, 2 * count):
        around = [segment >> level for level in range(segment.bit_length())]
        paths.append(tuple(sorted((found[block] for block in around if block in found), key=itemgetter(0))))
    node = build(rest, verified, compiler) if rest else None
    records = tuple(sorted([*wide, *rest], key=lambda record: record.priority))
    first = rest[0].priority if rest else 0
    return Span(form, records, (bounds, paths), node, first, 0, verified, compiler)


def _shared(records: Sequence[Record], verified: Verified) -> Box | None:
    """What all records ask alike beyond what is verified; None for nothing."""
    limits = {form: pair for form, pair in records[0].box.limits.items() if form not in verified}
    conditions = [term for term in records[0].box.rest if term not in verified]
    for record in records:
        limits = {form: pair for form, pair in limits.items() if record.box.limits.get(form) == pair}
        conditions = [term for term in conditions if term in record.box.rest]
        if not limits and not conditions:
            return None
    return Box(limits, tuple(conditions), ())


def _build_gate(
    shared: Box, members: Collection[Record], records: Sequence[Record], verified: Verified, compiler: Compiler
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
