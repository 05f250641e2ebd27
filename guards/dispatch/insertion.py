"""One more record in a dispatch tree: a new tree that shares with the old one all but one path."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from guards.dispatch.box import Compiler
from guards.dispatch.build import COVER, build
from guards.dispatch.nodes import Gate, Leaf, Node, Record, Span, Steps, Table, Verified
from guards.domains.interval_arithmetic import Pair


def insert(node: Node, record: Record, compiler: Compiler) -> Node:
    """The node with one more record, of lower priority than all in it; the same node if no value
    leads to it.

    >>> from guards.dispatch.box import Box
    >>> from guards.sets.guard_set import GuardSet
    >>> sets = [GuardSet.read("s0 == 1"), GuardSet.read("s0 > 0")]
    >>> first, second = (
    ...     Record(str(each), number, each, Box.of(each)) for number, each in enumerate(sets)
    ... )
    >>> compiler = Compiler(["s0"])
    >>> one = Leaf((first,), frozenset(), compiler)
    >>> both = insert(one, second, compiler)
    >>> one.find((2,)) is None, both.find((2,)) is second, both.find((1,)) is first
    (True, True, True)
    """
    match node:
        case Leaf():
            return _into_leaf(node, record, compiler)
        case Table():
            return _into_table(node, record, compiler)
        case Gate():
            return _into_gate(node, record, compiler)
        case Steps():
            return _into_steps(node, record, compiler)
        case Span():
            return _into_span(node, record, compiler)


def _alone(record: Record, verified: Verified, compiler: Compiler) -> Leaf:
    return Leaf((record,), verified, compiler)


def _into_rest(
    node: Table | Gate | Steps | Span, record: Record, compiler: Compiler
) -> tuple[Node, int] | None:
    """The rest of a node with one more record, and its highest priority; None where nothing can
    reach the record.
    """
    if node.rest is None:
        return _alone(record, node.verified, compiler), record.priority
    rest = insert(node.rest, record, compiler)
    return None if rest is node.rest else (rest, node.first)


def _into_leaf(node: Leaf, record: Record, compiler: Compiler) -> Node:
    if node.closed:
        return node
    records = (*node.records, record)
    if len(records) > node.limit:
        return build(records, node.verified, compiler)
    return Leaf(records, node.verified, compiler, node.limit)


def _into_table(node: Table, record: Record, compiler: Compiler) -> Node:
    points = record.points(node.forms)
    if points is None:
        rest = _into_rest(node, record, compiler)
        return (
            node
            if rest is None
            else Table(node.forms, node.branches, *rest, node.verified, compiler)
        )
    key = points[0] if len(points) == 1 else points
    branch = node.branches.get(key)
    made = (
        _alone(record, node.within, compiler)
        if branch is None
        else insert(branch, record, compiler)
    )
    if made is branch:
        return node
    return Table(
        node.forms, {**node.branches, key: made}, node.rest, node.first, node.verified, compiler
    )


def _into_gate(node: Gate, record: Record, compiler: Compiler) -> Node:
    limits, box = record.box.limits, node.shared
    if all(limits.get(f) == pair for f, pair in box.limits.items()) and set(
        record.box.rest
    ).issuperset(box.rest):
        branch = insert(node.branch, record, compiler)
        if branch is node.branch:
            return node
        return Gate(box, branch, node.rest, node.first, node.verified, compiler)
    rest = _into_rest(node, record, compiler)
    return node if rest is None else Gate(box, node.branch, *rest, node.verified, compiler)


def _into_steps(node: Steps, record: Record, compiler: Compiler) -> Node:
    limits = record.box.limits.get(node.form)
    if limits is not None:
        bounds, branches = node.bounds[:], node.branches[:]
        start, stop = _cut(bounds, branches, limits)
        open_ones = [
            i for i in range(start, stop) if (branch := branches[i]) is None or not branch.closed
        ]
        if len(open_ones) <= COVER or record.certain(node.within):
            if not open_ones:
                return node
            alone = _alone(record, node.within, compiler)
            for index in open_ones:
                branch = branches[index]
                branches[index] = alone if branch is None else insert(branch, record, compiler)
            return Steps(
                node.form, bounds, branches, node.rest, node.first, node.verified, compiler
            )
    rest = _into_rest(node, record, compiler)
    return (
        node
        if rest is None
        else Steps(node.form, node.bounds, node.branches, *rest, node.verified, compiler)
    )


def _cut(bounds: list[int], branches: list[Any], limits: Pair) -> tuple[int, int]:
    """Make the ends of a range bounds of segments; return the segments ``start`` to ``stop - 1``
    that it covers.
    """
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


def _into_span(node: Span, record: Record, compiler: Compiler) -> Node:
    """Add a record to the rest of a span; rebuild the span once the inserted records outnumber the
    original ones.
    """
    records = (*node.records, record)
    if 2 * node.inserted > len(records):
        return build(records, node.verified, compiler)
    rest = _into_rest(node, record, compiler)
    if rest is None:
        return node
    return Span(node.form, records, node.paths, *rest, node.inserted + 1, node.verified, compiler)
