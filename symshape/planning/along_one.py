"""Plans along one varying size: the cheapest ones, by either objective."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import Any

from symshape.errors import InputError
from symshape.planning.candidates import Best, at_most, candidates
from symshape.planning.limits import Limits
from symshape.planning.one_symbol import choose_caps
from symshape.planning.prices import Prices, Sizes
from symshape.planning.traffic import Traffic


def along_one(prices: Prices, seen: Traffic, varying: Sequence[str], limits: Limits, objective: str) -> Best:
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
        [(None if cost is None else cost + left, tuple(whole(sizes[i]) for i in caps)) for cost, caps in found]
    )


def _with_a_cap_at(counts: Sequence[int], costs: Sequence[float], most: int) -> list[tuple[Any, tuple[int, ...]]]:
    """Return the cheapest caps among those that keep 99 of 100 calls within the least possible price.

    This is the price of the 99th percentile of the sizes: a cap at that size reaches it, and no plan does better.

    Raises:
        InputError: the prices do not rise with the size.
    """
    if any(a > b for a, b in itertools.pairwise(costs)):
        raise InputError("latency_p99 needs prices that rise with the size; plan for the objective cost")
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
            found.append((cost, (*below.caps(i), *(place + 1 + each for each in above.caps(k - i)))))
    return found
