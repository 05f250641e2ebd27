"""Points of a region, spread over it: for tests and pictures, not for statistics (they are not
uniform).

Points are found by walks that choose one symbol after the other from what the choices before leave:
an end of its range or something between, and where conditions on that symbol alone say more, an end
or a member of a run of its values. What walks do not find a solver is asked for.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import log2

import attrs

from guards.budget import about, whole_question
from guards.domains.interval_arithmetic import SIZES, meet
from guards.domains.quasi_polynomial import TooMany, pieces_of
from guards.facts.facts import Facts
from guards.regions.satisfiability import Ranges, Values, empty_range, facts_of, holds, search
from guards.terms import boolean
from guards.terms.arithmetic import symbol
from guards.terms.boolean import FALSE
from guards.terms.term import Term, among

_POOL = 4  # candidates for each point wanted
_TRIES = 6  # walks for each candidate
_RUNS = 256  # of values of one symbol; with more, they are not looked at
_REACH = (2, 6, 12, 20)  # how far, as powers of two, an unbounded range is explored


@attrs.frozen
class _Run:
    """Values ``first, first + step, ..., last``; None for no end (then ``first`` or ``last`` says
    which values).
    """

    first: int | None
    last: int | None
    step: int
    rest: int

    def within(self, low: int, high: int) -> range:
        """The values between two bounds."""
        low = low if self.first is None else max(low, self.first)
        high = high if self.last is None else min(high, self.last)
        return range(low + (self.rest - low) % self.step, high + 1, self.step)


def _runs(conditions: Sequence[Term], ranges: Ranges) -> dict[str, list[_Run]]:
    """For each symbol on which some conditions speak alone the runs of values at which these
    hold.
    """
    found: dict[str, list[_Run]] = {}
    for name, limits in ranges.items():
        s = symbol(name)
        alone = [condition for condition in conditions if condition.symbols == {s}]
        if not alone:
            continue
        try:
            truths = pieces_of(boolean.and_(*alone), limits, most=_RUNS)
        except TooMany:
            continue
        runs = []
        for rest, row in enumerate(truths.classes):
            start = limits[0]
            for last, what in row:
                if what is True:
                    runs.append(_Run(start, last, truths.modulus, rest))
                start = None if last is None else last + 1
        found[name] = runs
    return found


_WORK = 60_000
"""Values times conditions that the walks of one sample may take: a few seconds where they are many.
"""


@whole_question()
def sample(conditions: Sequence[Term], ranges: Ranges, count: int, seed: int = 0) -> list[Values]:
    """Up to ``count`` different points of the region, far from each other; fewer only where no more
    were found.

    The same arguments give the same points.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, gt
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> found = sample([eq(s0 % 8, 0), gt(s0, s1)], {"s0": (0, 64), "s1": (3, None)}, 5)
    >>> len(found), all(p["s0"] % 8 == 0 and p["s0"] > p["s1"] >= 3 for p in found)
    (5, True)
    """
    if count <= 0 or empty_range(ranges) or among(FALSE, conditions):
        return []
    # sets have no order
    named = {name: SIZES for each in conditions for name in sorted(s.name for s in each.symbols)}
    ranges = {**named, **ranges}
    if not ranges:
        return [{}]
    about(2 * count)
    facts = facts_of(ranges, conditions)
    if facts.contradictory:
        return []
    rng = random.Random(seed)
    runs = _runs(conditions, ranges)
    pool: dict[tuple[int, ...], Values] = {}
    ends: set[tuple[int, ...]] = set()
    # of one walk: each value is taken in by all conditions
    work = len(ranges) * (1 + len(conditions))
    for _ in range(min(_POOL * _TRIES * count, _WORK // work)):
        walked = _walk(facts, list(ranges), rng, runs)
        if walked is not None and holds(conditions, ranges, walked[0]):
            key = tuple(walked[0][name] for name in ranges)
            pool.setdefault(key, {name: walked[0][name] for name in ranges})
            if walked[1]:
                ends.add(key)
            if len(pool) >= _POOL * count:
                break
    if len(pool) < count:
        _fill(pool, conditions, ranges, count, rng)
    return _spread(pool, ends, count)


def _walk(
    facts: Facts, names: list[str], rng: random.Random, runs: dict[str, list[_Run]]
) -> tuple[Values, bool] | None:
    """Values chosen one symbol after the other, and whether one of them is at an end; None in a
    dead end.
    """
    values: Values = {}
    at_an_end = False
    rng.shuffle(names)
    for name in names:
        s = symbol(name)
        for _ in range(3):
            picked = _pick(facts, s, rng, runs.get(name))
            if picked is not None:
                narrowed = facts.assume(boolean.eq(s, picked[0]))
                if not narrowed.contradictory:
                    break
        else:
            return None
        values[name], facts = picked[0], narrowed
        at_an_end = at_an_end or picked[1]
    return values, at_an_end


def _pick(
    facts: Facts, s: Term, rng: random.Random, runs: list[_Run] | None
) -> tuple[int, bool] | None:
    """A value that the facts may allow, and whether it is the first or the last of its range or of
    its run.
    """
    component = facts.component(s)
    inner = component.canonical(s)
    low, high = facts.interval(inner).lo, facts.interval(inner).hi
    modulus, rest = component.congruence(inner)
    run = _Run(None, None, max(modulus, 1), rest)
    if runs is not None:
        if not runs:
            return None
        run = rng.choice(runs)
        low, high = meet((low, high), (run.first, run.last))
    reach: int = run.step * 2 ** rng.choice(_REACH)
    ends = low, high
    if low is None:
        low = -reach if high is None else high - reach
    if high is None:
        high = low + reach
    values = run.within(low, high)
    if not values:
        return None
    number = (values[-1] - values[0]) // values.step + 1  # len(values) ends at 2**63
    value = rng.choice((values[0], values[-1], *(values[rng.randrange(number)] for _ in range(3))))
    at_an_end = (value == values[0] and ends[0] is not None) or (
        value == values[-1] and ends[1] is not None
    )
    return value, at_an_end


def _fill(
    pool: dict[tuple[int, ...], Values],
    conditions: Sequence[Term],
    ranges: Ranges,
    count: int,
    rng: random.Random,
) -> None:
    """Further points, each found by a solver outside of those in the pool, in a random direction
    where there is one.
    """
    names = list(ranges)
    while len(pool) < count:
        other = [
            boolean.or_(*(boolean.ne(symbol(name), point[name]) for name in names))
            for point in pool.values()
        ]
        found = None
        if pool:
            name = rng.choice(names)
            middle = rng.choice(list(pool.values()))[name]
            beyond = (
                boolean.gt(symbol(name), middle)
                if rng.random() < 0.7
                else boolean.lt(symbol(name), middle)
            )
            found = search([*conditions, *other, beyond], ranges).model
        if found is None:
            found = search([*conditions, *other], ranges).model
        if found is None:
            return
        pool[tuple(found[name] for name in names)] = {name: found[name] for name in names}


def _spread(
    pool: dict[tuple[int, ...], Values], ends: set[tuple[int, ...]], count: int
) -> list[Values]:
    """Points of the pool, each as far as possible from those chosen before; distance counts in
    powers of two.

    A point at an end of the region counts as if it were twice as far.
    """
    scaled = {key: [log2(1 + abs(value)) for value in key] for key in sorted(pool)}
    chosen: list[tuple[int, ...]] = []
    distance = dict.fromkeys(scaled, float("inf"))
    while scaled and len(chosen) < count and len(chosen) < len(pool):
        best = max(
            distance,
            key=lambda key: (distance[key] + (key in ends), tuple(-value for value in key)),
        )
        chosen.append(best)
        at = scaled[best]
        del distance[best]
        for key in distance:
            away = sum(abs(x - y) for x, y in zip(scaled[key], at, strict=True))
            distance[key] = min(distance[key], away)
    return [pool[key] for key in chosen]
