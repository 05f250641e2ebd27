"""Points of a region, spread over it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import log2

from guards import exprs
from guards.exprs import FALSE, Term, symbol
from guards.facts import Facts
from guards.regions import SIZE, Ranges, Values, empty_range, facts_of, holds, search

_POOL = 4  # candidates for each point wanted
_TRIES = 6  # walks for each candidate
_REACH = (2, 6, 12, 20)  # how far, as powers of two, an unbounded range is explored


def sample(conditions: Sequence[Term], ranges: Ranges, count: int, seed: int = 0) -> list[Values]:
    """Up to ``count`` different points of the region, far from each other; fewer only where no more were found.

    The same arguments give the same points.

    >>> from guards.exprs import eq, gt, symbol
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> found = sample([eq(s0 % 8, 0), gt(s0, s1)], {"s0": (0, 64), "s1": (3, None)}, 5)
    >>> len(found), all(p["s0"] % 8 == 0 and p["s0"] > p["s1"] >= 3 for p in found)
    (5, True)
    """
    if count <= 0 or empty_range(ranges) or FALSE in conditions:
        return []
    named = {s.name: SIZE for condition in conditions for s in condition.symbols}
    ranges = {**named, **ranges}
    facts = facts_of(ranges, conditions)
    if facts.contradictory:
        return []
    rng = random.Random(seed)
    pool: dict[tuple[int, ...], Values] = {}
    for _ in range(_POOL * _TRIES * count):
        values = _walk(facts, list(ranges), rng)
        if values is not None and holds(conditions, ranges, values):
            pool.setdefault(tuple(values[name] for name in ranges), {name: values[name] for name in ranges})
            if len(pool) >= _POOL * count:
                break
    if len(pool) < count:
        _fill(pool, conditions, ranges, count, rng)
    return _spread(pool, count)


def _walk(facts: Facts, names: list[str], rng: random.Random) -> Values | None:
    """Values chosen one symbol after the other, each from what the choices before leave; None in a dead end."""
    values: Values = {}
    rng.shuffle(names)
    for name in names:
        s = symbol(name)
        for _ in range(3):
            value = _pick(facts, s, rng)
            narrowed = facts.assume(exprs.eq(s, value)) if value is not None else facts
            if value is not None and not narrowed.contradictory:
                break
        else:
            return None
        values[name], facts = value, narrowed
    return values


def _pick(facts: Facts, s: Term, rng: random.Random) -> int | None:
    found = facts.interval(facts.canonical(s))
    low, high = found.lo, found.hi
    reach: int = 2 ** rng.choice(_REACH)
    if low is None:
        low = -reach if high is None else high - reach
    if high is None:
        high = low + reach
    if low > high:
        return None
    value = rng.choice((low, high, rng.randint(low, high), rng.randint(low, high), rng.randint(low, high)))
    modulus, rest = facts.scope(s).congruence(s)
    if modulus > 1:
        value = low + (rest - low) % modulus + (value - low) // modulus * modulus
        if value > high:
            value -= modulus
    return value if low <= value <= high else None


def _fill(
    pool: dict[tuple[int, ...], Values],
    conditions: Sequence[Term],
    ranges: Ranges,
    count: int,
    rng: random.Random,
) -> None:
    """Further points, each found by a solver outside of those in the pool, in a random direction where there is one."""
    names = list(ranges)
    while len(pool) < count:
        other = [exprs.or_(*(exprs.ne(symbol(name), point[name]) for name in names)) for point in pool.values()]
        found = None
        if pool:
            name = rng.choice(names)
            middle = rng.choice(list(pool.values()))[name]
            beyond = exprs.gt(symbol(name), middle) if rng.random() < 0.7 else exprs.lt(symbol(name), middle)
            found = search([*conditions, *other, beyond], ranges).model
        if found is None:
            found = search([*conditions, *other], ranges).model
        if found is None:
            return
        pool[tuple(found[name] for name in names)] = {name: found[name] for name in names}


def _spread(pool: dict[tuple[int, ...], Values], count: int) -> list[Values]:
    """Points of the pool, each as far as possible from those chosen before; distance counts in powers of two."""
    scaled = {key: [log2(1 + abs(value)) for value in key] for key in sorted(pool)}
    chosen: list[tuple[int, ...]] = []
    distance = dict.fromkeys(scaled, float("inf"))
    while scaled and len(chosen) < count and len(chosen) < len(pool):
        best = max(distance, key=lambda key: (distance[key], tuple(-value for value in key)))
        chosen.append(best)
        at = scaled[best]
        del distance[best]
        for key in distance:
            away = sum(abs(x - y) for x, y in zip(scaled[key], at, strict=True))
            distance[key] = min(distance[key], away)
    return [pool[key] for key in chosen]
