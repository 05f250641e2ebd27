"""The shadow of a region on one symbol: the values for which the rest can hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from itertools import product

import attrs

from guards import exprs
from guards.exprs import FALSE, Op, Term, symbol
from guards.fold import substitute
from guards.intervals import Pair, meet
from guards.regions import SIZE, Ranges, Search, components, empty_range, facts_of, range_conditions, search
from guards.total import guarded

_ROWS = 200  # eliminating a symbol must not make more conditions than this
_LISTED = 64  # a range of at most so many values is tried value by value
_FAR = 2**40  # a range that reaches this far is taken for unbounded


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


def project(conditions: Sequence[Term], ranges: Ranges, name: str) -> Shadow:
    """The shadow of a region on the symbol ``name``.

    >>> from guards.exprs import eq, gt, le, symbol
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> project([gt(s0 + s1, 2), le(s1, 1)], {"s0": (0, None), "s1": (0, None)}, "s0")
    Shadow(conditions=(<s0 >= 2>,), exact=True)
    >>> project([eq(s0 * s1, 6)], {"s0": (0, None), "s1": (0, None)}, "s0").conditions
    (<s0 >= 1>, <s0 <= 6>, <s0 != 4>, <s0 != 5>)
    """
    if empty_range(ranges) or FALSE in conditions:
        return NOTHING
    rows = [guarded(condition, facts_of(ranges)) for condition in conditions]
    rows += [c for other, limits in ranges.items() for c in range_conditions(other, limits)]
    target = symbol(name)
    if name not in ranges:
        rows += range_conditions(name, SIZE)
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
    if FALSE in left:
        return NOTHING
    if not eliminated:
        left, eliminated = _tighten(own, left, target)
    kept = _tidy(left, target)
    return Shadow(kept, exact and eliminated)


def _free(conditions: Sequence[Term]) -> Ranges:
    """Ranges for a search in which the conditions say all."""
    return {s.name: (None, None) for condition in conditions for s in condition.symbols}


def _tidy(rows: Sequence[Term], target: Term) -> tuple[Term, ...]:
    """Bounds of the symbol itself as one range, then the other conditions."""
    pair: Pair = (None, None)
    others: dict[Term, None] = {}
    for row in rows:
        parts = exprs.split(row.args[0])[1] if row.op in (Op.LE, Op.EQ) else ()
        if len(parts) == 1 and parts[0][0] is target:
            constant, coefficient = exprs.split(row.args[0])[0], parts[0][1]
            bound = -constant * coefficient
            low_ok = row.op is Op.EQ or coefficient < 0
            high_ok = row.op is Op.EQ or coefficient > 0
            pair = meet(pair, (bound if low_ok else None, bound if high_ok else None))
        elif row is not exprs.TRUE:
            others[row] = None
    low, high = pair
    if low is not None and high is not None and low > high:
        return (FALSE,)
    return (*range_conditions(target.name, pair), *others)


# -- elimination ------------------------------------------------------------------------------------------------------


def eliminate(rows: Sequence[Term], kept: Set[Term]) -> tuple[list[Term], bool]:
    """Conditions on the symbols ``kept`` alone, and whether they say all that the rows say about those.

    >>> from guards.exprs import gt, lt, symbol
    >>> a, b, c = map(symbol, "abc")
    >>> eliminate([lt(a, b), lt(b, c), gt(b, 3)], {a, c})
    ([<a + 2 <= c>, <c >= 5>], True)
    """
    left = list(dict.fromkeys(rows))
    exact = True
    fresh = 0
    while True:
        others: set[Term] = {s for row in left for s in row.symbols} - kept
        if not others or FALSE in left:
            return left, exact
        for s in sorted(others, key=lambda s: (sum(s in row.symbols for row in left), s.order)):
            found = _without(left, s, f"_k{fresh}_")
            if found is not None:
                left, fresh = list(dict.fromkeys(found)), fresh + 1
                break
        else:  # none can be eliminated: give up the conditions on one of them
            s = min(others, key=lambda s: (sum(s in row.symbols for row in left), s.order))
            left, exact = [row for row in left if s not in row.symbols], False


def _without(rows: list[Term], s: Term, fresh: str) -> list[Term] | None:
    """Conditions that hold exactly where some value of ``s`` satisfies all rows; None when this does not find them."""
    about = [row for row in rows if s in row.symbols]
    rest = [row for row in rows if s not in row.symbols]
    for row in about:
        if row.op is Op.EQ:
            value = _solved(row.args[0], s, fresh)
            if value is not None:
                try:
                    return rest + [substitute(other, {s: value}) for other in about if other is not row]
                except ZeroDivisionError:
                    return None
    lower: list[tuple[int, Term]] = []  # coefficient * s >= term
    upper: list[tuple[int, Term]] = []
    for row in about:
        if row.op is not Op.LE:
            return None
        constant, items = exprs.split(row.args[0])
        coefficient = dict(items).get(s)
        others = exprs.linear(constant, {m: c for m, c in items if m is not s})
        if coefficient is None or s in others.symbols:
            return None
        if coefficient > 0:
            upper.append((coefficient, exprs.scale(others, -1)))
        else:
            lower.append((-coefficient, others))
    if len(lower) * len(upper) > _ROWS or any(a > 1 and b > 1 for (a, _), (b, _) in product(lower, upper)):
        return None
    return rest + [exprs.le(exprs.scale(low, b), exprs.scale(high, a)) for (a, low), (b, high) in product(lower, upper)]


def _solved(zero: Term, s: Term, fresh: str) -> Term | None:
    """A term for ``s`` that makes ``zero == 0`` for every value of its symbols, all solutions among them."""
    constant, items = exprs.split(zero)
    coefficient = dict(items).get(s)
    if coefficient in (1, -1):
        value = exprs.scale(exprs.linear(constant, {m: c for m, c in items if m is not s}), -coefficient)
        return None if s in value.symbols else value
    if len(items) == 1 and items[0][0].op is Op.MOD and items[0][0].args[0] is s:
        divisor = items[0][0].args[1]
        rest = -constant * items[0][1]
        if items[0][1] in (1, -1) and divisor.op is Op.CONST and 0 <= rest < divisor.value:
            return exprs.scale(symbol(fresh), divisor.value) + rest
    return None


# -- by asking --------------------------------------------------------------------------------------------------------


def _tighten(rows: list[Term], left: list[Term], target: Term) -> tuple[list[Term], bool]:
    """The ends of the shadow, and where it is small each of its values, by searching for points."""
    free = _free(rows)

    def ask(condition: Term) -> Search:
        return search([*rows, condition], free)

    facts = facts_of(dict.fromkeys(free, (None, None)), rows)
    if facts.contradictory:
        return [FALSE], True
    found = facts.interval(target)
    low, high = found.lo, found.hi
    start = search(rows, free)
    if start.satisfiable is False:
        return [FALSE], True
    if start.model is None:
        return [*left, *range_conditions(target.name, (low, high))], False
    inside = start.model[target.name]
    if low is not None:
        low = _end(low, inside, -1, lambda end: ask(exprs.le(target, end)), target)
    high = _end(_FAR if high is None else high, inside, 1, lambda end: ask(exprs.ge(target, end)), target)
    pair = (low, None if high >= _FAR else high)
    bounds = [*range_conditions(target.name, pair)]
    if pair[0] is None or pair[1] is None or pair[1] - pair[0] >= _LISTED:
        return left + bounds, False
    exact = True
    for value in range(pair[0], pair[1] + 1):
        satisfiable = ask(exprs.eq(target, value)).satisfiable
        if satisfiable is False:
            bounds.append(exprs.ne(target, value))
        exact = exact and satisfiable is not None
    return bounds, exact


def _end(outer: int, inner: int, sign: int, ask: Callable[[int], Search], target: Term) -> int:
    """The outermost value of the shadow between ``inner``, which is in it, and ``outer``; further out where unknown."""
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
