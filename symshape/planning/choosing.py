"""The best caps for traffic, along one or two varying sizes."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import Any

from symshape.errors import InputError
from symshape.planning.candidates import Best, Limits, at_most, candidates
from symshape.planning.dynamic_programming import choose_caps
from symshape.planning.prices import Prices, Sizes
from symshape.planning.traffic import Traffic
from symshape.planning.two_sizes import along_two, improved, least


def along_one(
    prices: Prices, seen: Traffic, varying: Sequence[str], limits: Limits, objective: str
) -> Best:
    """Return the best plans for the sizes that came along one symbol (or for the only size).

    Raises:
        InputError: nothing fits, or the objective does not.
    """
    axis = prices.symbols.index(varying[0]) if varying else 0
    base = [seen.fixed.get(name, 0) for name in prices.symbols]
    if not varying:
        base = list(next(iter(seen.along(prices.symbols))))

    def whole(size: int) -> Sizes:
        return (*base[:axis], size, *base[axis + 1 :])

    counts = {point[0]: count for point, count in seen.along([prices.symbols[axis]]).items()}
    sizes = candidates(prices, counts, whole, limits.memory)
    upto = [0] * len(sizes)
    left = 0.0  # what no cap holds runs exact
    for size, count in counts.items():
        place = bisect.bisect_left(sizes, size)
        if place == len(sizes):
            left += prices.exact(whole(size)) * count
        else:
            upto[place] += count
    costs = [prices.at(whole(size)) for size in sizes]
    if objective == "latency_p99":
        found = _with_a_cap_at(upto, costs, limits.graphs)
    else:
        choices = choose_caps(upto, costs, limits.graphs)
        found = [(choices.costs[k], choices.caps(k)) for k in range(1, len(choices.costs))]
    return at_most(
        [
            (None if cost is None else cost + left, tuple(whole(sizes[i]) for i in caps))
            for cost, caps in found
        ]
    )


def _with_a_cap_at(
    counts: Sequence[int], costs: Sequence[float], most: int
) -> list[tuple[Any, tuple[int, ...]]]:
    """Return the cheapest caps among those that keep 99 of 100 calls within the least possible
    price.

    This is the price of the 99th percentile of the sizes: a cap at that size reaches it, and no
    plan does better.

    Raises:
        InputError: the prices do not rise with the size.
    """
    if any(a > b for a, b in itertools.pairwise(costs)):
        raise InputError(
            "latency_p99 needs prices that rise with the size; plan for the objective cost"
        )
    total, place = sum(counts), 0
    reached = counts[0]
    while reached < 0.99 * total:
        place += 1
        reached += counts[place]
    last = len(costs) - 1
    below = choose_caps(counts[: place + 1], costs[: place + 1], most)
    if place == last:
        return [(below.costs[k], below.caps(k)) for k in range(1, len(below.costs))]
    above = choose_caps(counts[place + 1 :], costs[place + 1 :], most)
    found: list[tuple[Any, tuple[int, ...]]] = [(sum(counts) * costs[last], (last,))]
    for k in range(2, most + 1):
        splits = [
            (below.costs[i] + above.costs[k - i], i)  # type: ignore[operator]
            for i in range(1, min(k, len(below.costs)))
            if k - i < len(above.costs)
        ]
        if splits:
            cost, i = min(splits)
            found.append(
                (cost, (*below.caps(i), *(place + 1 + each for each in above.caps(k - i))))
            )
    return found


def best_caps(prices: Prices, seen: Traffic, limits: Limits, objective: str) -> Best:
    """Return for each number of graphs the cost and the caps of the best plan with at most so many
    graphs.

    Raises:
        InputError: more than two sizes vary, nothing fits, or the objective does not.
    """
    varying = _varying(prices, seen)
    if len(varying) > 2:
        named = ", ".join(varying)
        advice = _advice(seen, varying)
        raise InputError(
            f"{len(varying)} sizes vary ({named}), and a plan is made along one or two. {advice}"
        )
    if objective == "latency_p99" and len(varying) > 1:
        raise InputError("the objective latency_p99 is for one varying size")
    if len(varying) == 2:
        return along_two(prices, seen, varying, limits)
    return along_one(prices, seen, varying, limits, objective)


def _varying(prices: Prices, seen: Traffic) -> list[str]:
    """Return the sizes that vary in the traffic, or among the measured sizes if they are few."""
    found = [name for name in prices.symbols if name in seen.varying]
    places = enumerate(prices.symbols)
    more = [
        name
        for place, name in places
        if name in found or any(cap[place] != seen.fixed[name] for cap in prices.measured or ())
    ]
    return more if len(more) <= 2 else found


def _advice(seen: Traffic, varying: Sequence[str]) -> str:
    """Return how fewer sizes can vary: sizes that are equal in every call need one name."""
    columns: dict[tuple[int, ...], list[str]] = {}
    for name in varying:
        column = seen.symbols.index(name)
        columns.setdefault(tuple(sizes[column] for sizes in seen.counts), []).append(name)
    equal = [" = ".join(group) for group in columns.values() if len(group) > 1]
    if not equal:
        return (
            "Declare the others as static (dynamic={argument: {dimension: size}}), or plan for "
            "traffic where they stay."
        )
    return (
        f"{' and '.join(equal)} in every call: give dimensions that are always equal one name, "
        "such as dynamic={'x': {0: 'batch'}, 'mask': {0: 'batch'}}, then only "
        f"{len(columns)} {'size varies' if len(columns) == 1 else 'sizes vary'}."
    )


def best_of_so_many(
    best: Best, count: int, prices: Prices, seen: Traffic, limits: Limits
) -> tuple[Sizes, ...]:
    """Return the caps of the best plan with at most ``count`` graphs; along two sizes, improved by
    local search.
    """
    caps = best[1][min(count, len(best[1])) - 1]
    varying = _varying(prices, seen)
    return improved(prices, seen, varying, limits, caps) if len(varying) == 2 else caps


def least_of_so_many(
    best: Best, count: int, prices: Prices, seen: Traffic, limits: Limits
) -> float:
    """Return a lower bound on the cost of all plans with at most ``count`` graphs; along one size
    it is reached.
    """
    varying = _varying(prices, seen)
    if len(varying) < 2:
        return best[0][min(count, len(best[0])) - 1]
    return least(prices, seen, varying, limits, count)
