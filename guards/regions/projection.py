"""The shadow of a region on one symbol: the values for which the rest can hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from guards.budget import whole_question
from guards.domains.interval_arithmetic import SIZES, Pair
from guards.domains.linear_form import bounded_by
from guards.domains.quasi_polynomial import TooMany, pieces_of
from guards.domains.value_sets import condition as told
from guards.facts.definedness import guarded
from guards.regions.elimination import eliminate
from guards.regions.satisfiability import (
    Ranges,
    Search,
    components,
    empty_range,
    facts_of,
    range_conditions,
    search,
    universe,
)
from guards.terms import boolean
from guards.terms.arithmetic import symbol
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import Op, Term, among

_LISTED = 64  # a range of at most so many values is tried value by value
_FAR = 2**40  # a range that reaches this far is taken for unbounded
# searches for the two ends together; an end that is not found by then stays further out
_NEARINGS = 44


@attrs.frozen
class Shadow:
    """The values of one symbol for which the rest of a region can hold.

    Attributes:
        conditions: conditions on the symbol alone that hold for all those values.
        exact: whether the conditions hold for no other value (otherwise the shadow may be smaller).
    """

    conditions: tuple[Term, ...]
    exact: bool


NOTHING = Shadow((FALSE,), True)


@whole_question()
def project(conditions: Sequence[Term], ranges: Ranges, name: str) -> Shadow:
    """The shadow of a region on the symbol ``name``.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, gt, le
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> project([gt(s0 + s1, 2), le(s1, 1)], {"s0": (0, None), "s1": (0, None)}, "s0")
    Shadow(conditions=(<s0 >= 2>,), exact=True)
    >>> project([eq(s0 * s1, 6)], {"s0": (0, None), "s1": (0, None)}, "s0").conditions
    (<s0 >= 1>, <s0 <= 6>, <s0 != 5>, <s0 != 4>)
    """
    if empty_range(ranges) or among(FALSE, conditions):
        return NOTHING
    rows = [guarded(condition, facts_of(ranges)) for condition in conditions]
    rows += [c for other, limits in ranges.items() for c in range_conditions(other, limits)]
    target = symbol(name)
    if name not in ranges:
        rows += range_conditions(name, SIZES)
    exact = True
    own: list[Term] = []
    for group in components(rows):
        chosen = [rows[index] for index in group]
        if any(target in row.symbols for row in chosen):
            own = chosen
            continue
        found = search(chosen, _free(chosen))
        if found.satisfiable is False:
            return NOTHING
        exact = exact and found.satisfiable is True
    left, eliminated = eliminate(own, {target})
    if not eliminated and left is not FALSE:
        left, eliminated = _tighten(own, left, target)
    told = _told(left, target, ranges.get(name, SIZES))
    return (
        Shadow(tuple(told), exact and eliminated)
        if len(told) != 1 or told[0] is not FALSE
        else NOTHING
    )


def _free(conditions: Sequence[Term]) -> Ranges:
    """Ranges for a search in which the conditions say all."""
    return {s.name: (None, None) for condition in conditions for s in condition.symbols}


def _told(condition: Term, target: Term, limits: Pair) -> list[Term]:
    """A condition on the symbol alone, as short as is known, bounds first; what every value meets
    is left out.
    """
    try:
        short = told(pieces_of(condition, universe(limits)), target)
    except TooMany:
        short = condition
    parts = list(short.args) if short.op is Op.AND else [] if short is TRUE else [short]
    return sorted(
        parts,
        key=lambda part: (part.op is not Op.LE, part.op is Op.LE and _upper(part), part.order),
    )


def _upper(part: Term) -> bool:
    found = bounded_by(part)
    return found is not None and found[1][1] is not None


# -- by asking -------------------------------------------------------------------------------------


def _tighten(rows: list[Term], left: Term, target: Term) -> tuple[Term, bool]:
    """The ends of the shadow, and where it is small each of its values, by searching for points."""
    free = _free(rows)

    def ask(condition: Term) -> Search:
        return search([*rows, condition], free)

    facts = facts_of(dict.fromkeys(free, (None, None)), rows)
    if facts.contradictory:
        return FALSE, True
    found = facts.interval(target)
    low, high = found.lo, found.hi
    start = search(rows, free)
    if start.satisfiable is False:
        return FALSE, True
    if start.model is None:
        return boolean.and_(left, *range_conditions(target.name, (low, high))), False
    inside = start.model[target.name]
    nearings = iter(range(_NEARINGS))

    def near(condition: Term) -> Search:
        return (
            ask(condition)
            if next(nearings, None) is not None
            else Search(None, None, "enough searches")
        )

    if low is not None:
        low = _end(low, inside, -1, lambda end: near(boolean.le(target, end)), target)
    high = _end(
        _FAR if high is None else high, inside, 1, lambda end: near(boolean.ge(target, end)), target
    )
    pair = (low, None if high >= _FAR else high)
    bounds = [*range_conditions(target.name, pair)]
    if pair[0] is None or pair[1] is None or pair[1] - pair[0] >= _LISTED:
        return boolean.and_(left, *bounds), False
    exact = True
    for value in range(pair[0], pair[1] + 1):
        satisfiable = ask(boolean.eq(target, value)).satisfiable
        if satisfiable is False:
            bounds.append(boolean.ne(target, value))
        exact = exact and satisfiable is not None
    return boolean.and_(*bounds), exact


def _end(outer: int, inner: int, sign: int, ask: Callable[[int], Search], target: Term) -> int:
    """The outermost value of the shadow between ``inner``, which is in it, and ``outer``; further
    out where unknown.
    """
    while outer != inner:
        middle = outer if abs(outer - inner) == 1 else inner + (outer - inner) // 2
        found = ask(middle)
        if found.model is not None:
            inner = found.model[target.name]
            if (outer - inner) * sign <= 0:
                return outer
        elif found.satisfiable is False:
            outer = middle - sign
        else:
            return outer
    return outer
