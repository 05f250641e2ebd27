"""Minimising of a conjunction: conditions that the others imply are dropped.

The result is irredundant as far as that could be proven; it need not be the shortest set with the
same meaning. A condition is dropped only for a proof, in these steps:

- Of ranges of the same form the tightest is kept.
- The cheap rungs of :mod:`guards.asking.ladder` look through all conditions, then the whole ladder
  looks at the rest. Where many conditions are left, one Z3 solver that holds all of them is asked
  in place of the ladder.
- Z3 alone, given nothing but the ranges and the conditions, confirms each condition that was
  dropped, unless :mod:`guards.regions.evident` sees it at once. A condition that is not confirmed
  stays in the set.
"""

from __future__ import annotations

from collections.abc import Sequence

from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.budget import about, whole_question
from guards.deciders.z3_solver import Proved, Together
from guards.domains.interval_arithmetic import SIZES
from guards.domains.linear_form import bounded_by
from guards.facts.definedness import guarded, partial
from guards.facts.facts import Facts
from guards.regions.evident import Evident
from guards.regions.necessity import shown
from guards.regions.satisfiability import (
    Ranges,
    components,
    empty_range,
    facts_of,
    range_conditions,
    solve_alone,
)
from guards.terms import boolean
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import Monomials, Op, Term, among

# conditions that depend on each other: of more, only those go that bound a form less tightly than
# another
_MOST = 300
_MANY = 24  # conditions left after the cheap rungs, from which on they are asked together


def _weight(term: Term) -> tuple[int, ...]:
    """Return a sort key: how hard a condition is to read and to check. Conditions that should stay
    sort first.
    """
    kind = {Op.EQ: 0, Op.LE: 1, Op.NE: 2, Op.AND: 3, Op.OR: 4}.get(term.op, 5)
    return (
        len(term.symbols) > 1 and kind != 0,
        term.depth > 2,
        kind,
        term.depth,
        len(term.symbols),
    )


@whole_question()
def needed(
    conditions: Sequence[Term],
    ranges: Ranges,
    effort: Effort = Effort.FULL,
    given: Sequence[Term] = (),
) -> list[int]:
    """The indices, in order, of conditions that together with the ranges imply all of them, none
    implied by the others.

    What is ``given`` holds beside the ranges.  Where an implication is not decided, both conditions
    stay; a conjunction that nothing satisfies is returned whole.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import ge, gt
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> needed([gt(s0 + s1, 2), ge(s0, 3), ge(s1, 0)], {"s0": (0, None), "s1": (0, None)})
    [1]
    """
    about(len(conditions) + len(given))
    everything = list(range(len(conditions)))
    if empty_range(ranges) or among(FALSE, conditions):
        return everything
    large = {index for group in components(conditions) if len(group) > _MOST for index in group}
    if large:
        tight = [index for index in _tightest(conditions) if index in large]
        small = [index for index in everything if index not in large]
        found = needed([conditions[index] for index in small], ranges, effort, given)
        return sorted([*tight, *(small[index] for index in found)])
    facts = start = facts_of(ranges, given)
    conditions = [guarded(condition, start) for condition in conditions]
    kept: list[int] = []
    looked = sorted(_tightest(conditions), key=lambda i: (_weight(conditions[i]), i))
    for index in looked:
        term = conditions[index]
        if term is not TRUE and ask(facts, term, effort=Effort.CHEAP, only=True) is not True:
            facts = facts.assume(term)
            kept.append(index)
    if facts.contradictory:
        return everything
    kept.reverse()  # the heavy ones are the first to go
    background = [guarded(condition, start) for condition in given]
    sure = shown(facts, kept, conditions, background, ranges)
    open_ones = [index for index in kept if index not in sure]
    if effort is Effort.FULL and len(open_ones) > _MANY:
        dropped = sorted(set(looked).difference(kept))
        return sorted(_together(kept, sure, dropped, conditions, background, ranges))
    start = _assume(start, [index for index in kept if index in sure], conditions)
    open_ones = _without_implied(start, open_ones, conditions, Effort.CHEAP)
    if effort is Effort.FULL:
        open_ones = _without_implied(start, open_ones, conditions, Effort.FULL)
    kept = [*sure, *open_ones]
    if effort is Effort.FULL:
        behind = range(len(conditions), len(conditions) + len(given))
        kept += _unconfirmed([*conditions, *map(guarded, given)], [*kept, *behind], ranges)
    return sorted(kept)


def _tightest(conditions: Sequence[Term]) -> list[int]:
    """The indices of all conditions but those that bound a form less tightly than another one does:
    no proof needed.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, le
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> _tightest([le(s0 + s1, 9), le(s0 + s1, 7), le(s0, 7), eq(s0, 3), le(s0 + s1, 7)])
    [1, 3]
    """
    best: dict[
        tuple[Monomials, int], tuple[int, int]
    ] = {}  # of what bounds a form from above (1), from below (-1)
    others: list[int] = []
    fixed: dict[Monomials, int] = {}
    for index, condition in enumerate(conditions):
        found = None if partial(condition) else bounded_by(condition)
        if found is None:
            others.append(index)
            continue
        form, (low, high) = found
        if low is not None and low == high:
            fixed.setdefault(form, low)
            others.append(index)
        elif high is not None:
            best[form, 1] = min(best.get((form, 1), (high, index)), (high, index))
        elif low is not None:
            best[form, -1] = min(best.get((form, -1), (-low, index)), (-low, index))
    for form, value in fixed.items():
        for side in (1, -1):
            if (form, side) in best and best[form, side][0] >= side * value:
                del best[form, side]
    return sorted([*others, *(index for _, index in best.values())])


def _together(
    kept: list[int],
    sure: set[int],
    dropped: Sequence[int],
    conditions: Sequence[Term],
    given: Sequence[Term],
    ranges: Ranges,
) -> list[int]:
    """Return ``kept`` without the conditions that the others imply, and the ``dropped`` that are
    not implied.

    Indices in ``sure`` are known to be needed and are not asked about.
    """
    always = [
        *given,
        *(c for name, limits in ranges.items() for c in range_conditions(name, limits)),
    ]
    asked = Together(always, [conditions[index] for index in kept])
    left = list(range(len(kept)))
    for index in [position for position, each in enumerate(kept) if each not in sure]:
        others = [other for other in left if other != index]
        if asked.implies(others, conditions[kept[index]]):
            left = others
    found = [kept[index] for index in left]
    all_found = Together([*always, *(conditions[index] for index in found)])
    return [*found, *(index for index in dropped if not all_found.implies([], conditions[index]))]


def _unconfirmed(conditions: Sequence[Term], kept: Sequence[int], ranges: Ranges) -> list[int]:
    """The dropped conditions that the kept ones neither plainly imply nor, by Z3, imply at all."""
    found: list[int] = []
    chosen = set(kept)
    for group in components(conditions):
        stays = [conditions[index] for index in group if index in chosen]
        dropped = [
            index for index in group if index not in chosen and conditions[index] is not TRUE
        ]
        if dropped:
            seen = Evident(stays, ranges)
            dropped = [index for index in dropped if not seen.implies(conditions[index])]
        found += _open(stays, dropped, conditions, ranges)
    return found


def _open(
    stays: Sequence[Term], dropped: list[int], conditions: Sequence[Term], ranges: Ranges
) -> list[int]:
    """Return the indices of ``dropped`` that are not confirmed: many are asked about at once, then
    halves.
    """
    if not dropped or _confirmed(stays, [conditions[index] for index in dropped], ranges):
        return []
    if len(dropped) == 1:
        return dropped
    middle = len(dropped) // 2
    return [
        i
        for half in (dropped[:middle], dropped[middle:])
        for i in _open(stays, half, conditions, ranges)
    ]


def _confirmed(kept: Sequence[Term], dropped: Sequence[Term], ranges: Ranges) -> bool:
    counterexample = boolean.and_(*kept, boolean.or_(*map(boolean.not_, dropped)))
    if counterexample is FALSE:
        return True
    own = {s.name: ranges.get(s.name, SIZES) for s in counterexample.symbols}
    return isinstance(solve_alone(facts_of(own), counterexample), Proved)


def _without_implied(
    facts: Facts, indices: list[int], conditions: Sequence[Term], effort: Effort
) -> list[int]:
    """``indices`` without those whose condition the others and ``facts`` imply, tried in this
    order.
    """
    if not indices:
        return []
    if len(indices) == 1:
        implied = ask(facts, conditions[indices[0]], effort=effort, only=True) is True
        return [] if implied else indices
    middle = len(indices) // 2
    first, second = indices[:middle], indices[middle:]
    if first:
        first = _without_implied(_assume(facts, second, conditions), first, conditions, effort)
    if second:
        second = _without_implied(_assume(facts, first, conditions), second, conditions, effort)
    return first + second


def _assume(facts: Facts, indices: list[int], conditions: Sequence[Term]) -> Facts:
    for index in indices:
        facts = facts.assume(conditions[index])
    return facts
