"""The point of a region nearest to a given one: the fewest values changed, then the smallest sum of
changes.

Sets of symbols are moved in order of their size.  One symbol alone is moved step by step; of
several the distance is halved by asking for a point within it, until nothing nearer is possible.
Both have limits: a point found beyond them may not be the nearest, and ``certain`` is False then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import attrs

from guards.budget import spent, whole_question
from guards.domains.interval import Interval
from guards.domains.interval_arithmetic import SIZES
from guards.facts.definedness import guarded, satisfied
from guards.regions.satisfiability import (
    Ranges,
    Values,
    components,
    facts_of,
    holds,
    range_conditions,
    search,
)
from guards.terms import arithmetic, boolean, extremes
from guards.terms.fold import substitute
from guards.terms.term import Term, among

_LINE = 512  # a single value is moved step by step so far before a solver is asked
_SUBSETS = 400  # sets of symbols looked at
_DECISIONS = 60  # of the solver, for one set of symbols


@attrs.frozen
class Nearest:
    """The nearest point, as far as it was found.

    Attributes:
        values: a value for every symbol.
        changed: the names of those that differ from the given point.
        certain: whether it is proven that no other point is nearer.
    """

    values: Values
    changed: tuple[str, ...]
    certain: bool


@whole_question()
def nearest(
    conditions: Sequence[Term], ranges: Ranges, values: Mapping[str, int]
) -> Nearest | None:
    """The nearest point of the region to ``values``, which names every symbol; None when none was
    found.

    Changing fewer values counts first, then the sum of the changes.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, gt
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> nearest([gt(s0 + s1, 2), eq(s1 % 4, 0)], {}, {"s0": 1, "s1": 0})
    Nearest(values={'s0': 3, 's1': 0}, changed=('s0',), certain=True)
    """
    named = {s.name: SIZES for condition in conditions for s in condition.symbols}
    ranges = {**named, **ranges}
    rows = [guarded(c) for c in conditions]
    rows += [c for name, limits in ranges.items() for c in range_conditions(name, limits)]
    moved: Values = dict(values)
    certain = True
    for group in components(rows):
        chosen = [rows[index] for index in group]
        if all(satisfied(row, values) for row in chosen):
            continue
        found = _nearest_in(chosen, values)
        if found is None:
            return None
        moved.update(found.values)
        certain = certain and found.certain
    changed = tuple(name for name in moved if moved[name] != values[name])
    return Nearest(moved, changed, certain) if holds(conditions, ranges, moved) else None


def _nearest_in(rows: Sequence[Term], values: Mapping[str, int]) -> Nearest | None:
    """The nearest point for conditions that are connected and of which one fails."""
    symbols = sorted({s for row in rows for s in row.symbols}, key=lambda s: s.order)
    failing = [row for row in rows if not satisfied(row, values)]
    certain = True
    looked = 0
    for size in range(1, len(symbols) + 1):
        best: Nearest | None = None
        for free in combinations(symbols, size):
            if any(row.symbols.isdisjoint(free) for row in failing):
                continue  # a failing condition would stay as it is
            looked += 1
            if looked > _SUBSETS or spent():
                certain = False
                break
            bound = _distance(best.values, values) if best else None
            found, sure = _moving(rows, values, free, bound)
            certain = certain and sure
            if found is not None:
                best = Nearest(found, tuple(s.name for s in free), certain)
        if best is not None:
            return attrs.evolve(best, certain=certain)
        if looked > _SUBSETS or spent():
            break
    return _anywhere(rows, values)


def _anywhere(rows: Sequence[Term], values: Mapping[str, int]) -> Nearest | None:
    names = {s.name: (None, None) for row in rows for s in row.symbols}
    found = search(rows, names).model
    if found is None:
        return None
    return Nearest(found, tuple(name for name in found if found[name] != values[name]), False)


def _distance(there: Mapping[str, int], here: Mapping[str, int]) -> int:
    return sum(abs(value - here[name]) for name, value in there.items())


def _moving(
    rows: Sequence[Term], values: Mapping[str, int], free: Sequence[Term], bound: int | None
) -> tuple[Values | None, bool]:
    """The nearest point that moves ``free`` alone, by less than ``bound``; and whether that is the
    whole truth.
    """
    fixed = {
        s: arithmetic.const(values[s.name])
        for row in rows
        for s in row.symbols
        if not among(s, free)
    }
    left = [substitute(row, fixed) for row in rows]
    if among(boolean.FALSE, left):
        return None, True
    left = [row for row in dict.fromkeys(left) if row is not boolean.TRUE]
    here = {s.name: values[s.name] for s in free}
    facts = facts_of(dict.fromkeys(here, (None, None)), left)
    if facts.contradictory:
        return None, True
    if len(free) == 1:
        found = _along_line(left, free[0], here[free[0].name], bound, facts.interval(free[0]))
        if found is not None:
            return found, True
    return _by_solver(left, free, here, bound)


def _along_line(
    rows: Sequence[Term], s: Term, start: int, bound: int | None, within: Interval
) -> Values | None:
    """The nearest value of one symbol, looked for step by step where the rows may hold at all."""
    low, high = within.lo, within.hi
    first = max(1, 0 if low is None else low - start, 0 if high is None else start - high)
    for step in range(first, first + _LINE if bound is None else min(bound, first + _LINE)):
        for value in (start + step, start - step):
            if value in within and all(satisfied(row, {s.name: value}) for row in rows):
                return {s.name: value}
    return None


def _by_solver(
    rows: Sequence[Term], free: Sequence[Term], here: Values, bound: int | None
) -> tuple[Values | None, bool]:
    """Find the nearest point as :func:`_moving` does, by Z3: the distance is halved until it cannot
    be less.
    """
    ranges = dict.fromkeys(here, (None, None))
    distance = arithmetic.total(extremes.maximum(s - here[s.name], here[s.name] - s) for s in free)
    least = 1 if len(free) == 1 else len(free)  # each of them moves
    best: Values | None = None
    most = None if bound is None else bound - 1
    for _ in range(_DECISIONS):
        if most is not None and most < least:
            return best, True
        middle = most if most is None or best is None else (least + most) // 2
        near = [] if middle is None else [boolean.le(distance, middle)]
        found = search([*rows, *near], ranges)
        if found.model is not None:
            best = found.model
            most = _distance(best, here) - 1
        elif found.satisfiable is None:
            return best, False
        elif middle is None or best is None:
            return None, True
        else:
            least = middle + 1
    return best, False
