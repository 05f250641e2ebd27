"""The nodes of a dispatch tree, and how each is searched: immutable, so that readers need no lock.

``find(values)`` returns the record of highest priority whose box holds.  A node may have a ``rest``
beside its branches: the records that do not constrain what the node looks at.  They are searched
only where they could win.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from guards.dispatch.box import Box, Compiler, Getter, Test, Values
from guards.sets.guard_set import GuardSet
from guards.terms.term import Term

LEAF = 4  # a leaf with more candidates than this is split when something tells them apart

Verified = frozenset[Term]


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
        """Return whether ``verified`` covers all tests of the record."""
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

    __slots__ = ("closed", "find", "limit", "records", "verified")

    def __init__(
        self, records: tuple[Record, ...], verified: Verified, compiler: Compiler, limit: int = LEAF
    ) -> None:
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


class Gate:
    """One branch behind a test that all its records share: within it, fewer of them are
    uncertain.
    """

    __slots__ = ("branch", "closed", "find", "first", "rest", "shared", "verified", "within")

    def __init__(
        self,
        shared: Box,
        branch: Node,
        rest: Node | None,
        first: int,
        verified: Verified,
        compiler: Compiler,
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

    __slots__ = (
        "bounds",
        "branches",
        "closed",
        "find",
        "first",
        "form",
        "rest",
        "verified",
        "within",
    )

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
    """Wide ranges of one form that overlap: each is cut into few blocks of segments, one inside the
    other by halves.

    A value lies in one block of each size; so as many nodes are searched as there are sizes, the
    most promising first.
    """

    __slots__ = (
        "closed",
        "find",
        "first",
        "form",
        "inserted",
        "paths",
        "records",
        "rest",
        "verified",
    )

    def __init__(
        self,
        form: Term,
        records: tuple[Record, ...],
        paths: tuple[list[int], list[Path]],
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


# the nodes to search, each with its best priority
Path = tuple[tuple[int, Callable[[Values], Record | None]], ...]


def _span_search(
    form: Getter, bounds: list[int], paths: list[Path], rest: Node | None, first: int
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
