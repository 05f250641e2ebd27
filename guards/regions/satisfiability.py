"""Conjunctions of conditions as regions: is there a point, which, and what is responsible when
there is none.

Everything here is asked of conditions and ranges by name; a symbol without a range is a size.
Conditions are read as total: where one is undefined, it does not hold.  Points are found by cheap
means first and by Z3 after that; every point is checked before it is returned, and that there is
none is said only with a proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.budget import SPENT, about, current, whole_question
from guards.deciders.witnesses import points
from guards.deciders.z3_solver import Outcome, Proved, Refuted, solve_formula
from guards.domains.interval_arithmetic import SIZES, Pair
from guards.facts.definedness import guarded, satisfied, total
from guards.facts.facts import Facts
from guards.terms import boolean
from guards.terms.arithmetic import symbol
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import Term, among

Ranges = Mapping[str, Pair]
Values = dict[str, int]


@attrs.frozen
class Search:
    """The result of a search for a point.

    Attributes:
        satisfiable: True with a point, False with a proof that there is none, None when neither was
            found.
        model: the point.
        reason: why nothing was found out.
    """

    satisfiable: bool | None
    model: Values | None = None
    reason: str = ""


NOWHERE = Search(False)


def empty_range(ranges: Ranges) -> bool:
    """Return whether some range is empty: its lower bound exceeds its upper bound.

    >>> empty_range({"s0": (0, None), "s1": (3, 2)})
    True
    """
    return any(low is not None and high is not None and low > high for low, high in ranges.values())


def universe(limits: Pair) -> Pair:
    """The values that a symbol of some range may have at all: sizes, where the range allows nothing
    below 0.

    >>> universe((2, 8)), universe((-1, 8))
    ((0, None), (None, None))
    """
    return SIZES if limits[0] is not None and limits[0] >= 0 else (None, None)


def range_conditions(name: str, limits: Pair) -> tuple[Term, ...]:
    """The conditions that a range puts on a symbol.

    >>> (
    ...     [str(t) for t in range_conditions("s0", (2, 8))],
    ...     [str(t) for t in range_conditions("s0", (5, 5))],
    ... )
    (['s0 >= 2', 's0 <= 8'], ['s0 == 5'])
    """
    low, high = limits
    s = symbol(name)
    if low is not None and low == high:
        return (boolean.eq(s, low),)
    lower = () if low is None else (boolean.ge(s, low),)
    return lower if high is None else (*lower, boolean.le(s, high))


def facts_of(ranges: Ranges, conditions: Iterable[Term] = ()) -> Facts:
    """Ranges, none of them empty, and conditions, read as total, as facts.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import ge
    >>> facts_of({"s0": (0, 8)}, [ge(symbol("s0"), 2)]).interval(symbol("s0"))
    Interval(lo=2, hi=8)
    """
    facts = Facts.make({symbol(name): limits for name, limits in ranges.items()})
    for condition in conditions:
        facts = facts.assume(total(condition, facts))
    return facts


def components(conditions: Sequence[Term]) -> list[list[int]]:
    """The indices of conditions, in groups that share no symbol.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import ge, gt
    >>> a, b, c = map(symbol, "abc")
    >>> components([ge(a, 1), gt(c, 2), gt(a + b, 3)])
    [[0, 2], [1]]
    """
    parents: dict[Term, Term] = {}  # of symbols: two with one root are in one group
    for condition in conditions:
        first: Term | None = None
        for s in condition.symbols:
            root = _root(parents, s)
            if first is None:
                first = root
            else:
                parents[root] = first
    groups: dict[Term | int, list[int]] = {}
    for index, condition in enumerate(conditions):
        symbol = next(iter(condition.symbols), None)
        groups.setdefault(index if symbol is None else _root(parents, symbol), []).append(index)
    return list(groups.values())


def _root(parents: dict[Term, Term], symbol: Term) -> Term:
    """Return the symbol that stands for the group of ``symbol``, and shorten the way to it."""
    above = parents.setdefault(symbol, symbol)
    while above is not symbol:
        parents[symbol] = parents[above]
        symbol, above = above, parents[above]
    return symbol


@whole_question()
def search(conditions: Sequence[Term], ranges: Ranges) -> Search:
    """A point of the region, which gives a value to every symbol, or that there is none.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, gt
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> search([gt(s0, 3), eq(s0 % 8, 0)], {"s0": (0, 20)}).model
    {'s0': 8}
    >>> search([gt(s0, s1), gt(s1, s0)], {}).satisfiable
    False
    """
    if empty_range(ranges) or among(FALSE, conditions):
        return NOWHERE
    budget = current()
    if budget is None or not budget.search():
        return Search(None, None, SPENT)
    model = {name: _default(limits) for name, limits in ranges.items()}
    undecided = ""
    for group in components(conditions):
        found = _search_component([conditions[index] for index in group], ranges)
        if found.satisfiable is False:
            return NOWHERE
        if found.model is None:
            undecided = undecided or found.reason or "not known"
        else:
            model.update(found.model)
    if undecided:
        return Search(None, None, undecided)
    return (
        Search(True, model)
        if holds(conditions, ranges, model)
        else Search(None, None, "the point found is wrong")
    )


def holds(conditions: Iterable[Term], ranges: Ranges, values: Mapping[str, int]) -> bool:
    """Return whether the values are a point of the region.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import gt
    >>> holds([gt(symbol("s0"), 3)], {"s0": (0, 8)}, {"s0": 9})
    False
    """
    for name, (low, high) in ranges.items():
        value = values[name]
        if (low is not None and value < low) or (high is not None and value > high):
            return False
    return all(satisfied(condition, values) for condition in conditions)


def _default(limits: Pair) -> int:
    low, high = limits
    if low is not None:
        return low
    return 0 if high is None else min(high, 0)


def _search_component(conditions: Sequence[Term], ranges: Ranges) -> Search:
    """Search as :func:`search` does, for conditions that are connected by their symbols."""
    symbols = {s for condition in conditions for s in condition.symbols}
    own = {s.name: ranges.get(s.name, SIZES) for s in sorted(symbols, key=lambda s: s.order)}
    bare = facts_of(own)
    whole = boolean.and_(*(total(condition, bare) for condition in conditions))
    if whole is FALSE:
        return NOWHERE
    if whole is TRUE:
        return Search(True, {name: _default(limits) for name, limits in own.items()})
    facts = facts_of(own, conditions)
    if facts.contradictory:
        return NOWHERE
    for point in points(facts.component(whole)):
        if holds(conditions, own, point):
            return Search(True, {name: point[name] for name in own})
    # the bare ranges and the whole conjunction: the verdict rests on Z3 alone
    found = solve_alone(bare, whole)
    if isinstance(found, Proved):
        return NOWHERE
    if isinstance(found, Refuted):
        return Search(
            True, {name: found.model.get(name, _default(limits)) for name, limits in own.items()}
        )
    return Search(None, None, found.reason)


def solve_alone(bare: Facts, whole: Term) -> Outcome:
    """Decide a formula by Z3 alone, which is told nothing but ranges.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import gt
    >>> s0 = symbol("s0")
    >>> solve_alone(facts_of({"s0": (0, 3)}), gt(s0 * s0, 9))
    Proved()
    """
    component = bare.component(whole)
    return solve_formula(component, component.canonical(whole))


@whole_question()
def implied(
    conditions: Sequence[Term], ranges: Ranges, condition: Term, facts: Facts | None = None
) -> Search:
    """A point of the region at which ``condition`` fails; ``satisfiable`` is False when the region
    implies it.

    ``facts`` are :func:`facts_of` the region, for callers that ask about many conditions; the
    ranges then name all symbols of the condition.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import ge, gt
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> (
    ...     implied([ge(s0, 3)], {}, gt(s0 + s1, 2)).satisfiable,
    ...     implied([ge(s0, 2)], {}, gt(s0 + s1, 2)).model,
    ... )
    (False, {'s0': 2, 's1': 0})
    """
    if empty_range(ranges):
        return NOWHERE
    if facts is None:
        ranges = {s.name: SIZES for s in sorted(condition.symbols, key=lambda s: s.order)} | dict(
            ranges
        )
        facts = facts_of(ranges, conditions)
    if facts.contradictory:
        return NOWHERE
    wanted = guarded(condition, facts)
    if ask(facts, wanted, effort=Effort.CHEAP, only=True) is True:
        return NOWHERE
    return search([*conditions, boolean.not_(wanted)], ranges)


@whole_question()
def core(conditions: Sequence[Term], ranges: Ranges) -> list[int] | None:
    """The indices of conditions that nothing satisfies together, though something satisfies any
    fewer of them.

    None when it is not proven that nothing satisfies all of them.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, ge, gt, lt
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> core([ge(s0, 2), eq(s1, 5), gt(s0, s1), lt(s0, 3)], {})
    [1, 2, 3]
    """
    about(len(conditions))
    candidates = [
        group for group in components(conditions) if _unsatisfiable(conditions, group, ranges)
    ]
    if not candidates:
        return [] if empty_range(ranges) else None
    return min(
        (_shrunk(conditions, group, ranges) for group in candidates),
        key=lambda found: (len(found), found),
    )


def _unsatisfiable(conditions: Sequence[Term], indices: Iterable[int], ranges: Ranges) -> bool:
    chosen = [conditions[index] for index in indices]
    named = {s.name for condition in chosen for s in condition.symbols}
    return (
        search(
            chosen, {name: limits for name, limits in ranges.items() if name in named}
        ).satisfiable
        is False
    )


def _shrunk(conditions: Sequence[Term], indices: list[int], ranges: Ranges) -> list[int]:
    """A least part of unsatisfiable ``indices`` that still is; large parts are left out before
    single ones.
    """
    kept = list(indices)
    size = len(kept) // 2
    while size:
        start = 0
        while start < len(kept) and len(kept) > 1:
            fewer = kept[:start] + kept[start + size :]
            if fewer and _unsatisfiable(conditions, fewer, ranges):
                kept = fewer
            else:
                start += size
        size //= 2
    return sorted(kept)
