"""Caps along one symbol, chosen by dynamic programming: exactly the cheapest, for every number of caps at once.

A call is padded to the least cap that holds it. Let ``c`` be the prices at the candidates, and ``F`` the calls up to
each. The best way to serve the calls up to candidate ``j`` with ``k`` caps is the minimum over ``i`` of ``best[k-1][i]
+ (F[j] - F[i]) * c[j]``. For each ``j`` this is the minimum of lines at ``c[j]``. Their lower envelope finds it, in
``O(k n log n)`` in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs

Number = int | float


@attrs.frozen
class Choices:
    """The best caps for each number of caps.

    Attributes:
        costs: ``costs[k]``: what all calls cost with ``k`` caps; None for no caps.
        parents: for each number of caps, and each candidate as the last cap, the candidate before (-1 for none).
    """

    costs: tuple[Number | None, ...]
    parents: tuple[tuple[int, ...], ...]

    def caps(self, count: int) -> tuple[int, ...]:
        """Return the indices of the ``count`` chosen candidates, in ascending order."""
        found: list[int] = []
        last = len(self.parents[0]) - 1 if self.parents else -1
        for layer in range(count, 0, -1):
            found.append(last)
            last = self.parents[layer - 1][last]
        return tuple(reversed(found))


def choose_caps(counts: Sequence[int], prices: Sequence[Number], most: int) -> Choices:
    """Return the best caps among candidates in ascending order, for each number of caps from 1 to ``most``.

    Args:
        counts: how many calls have the candidate as the least one that holds them.
        prices: what a call padded to the candidate costs.
        most: how many caps at most; more than there are candidates are not looked at.

    >>> found = choose_caps([5, 1, 4], [10, 20, 30], 2)
    >>> found.costs, found.caps(2)
    ((None, 300, 200), (0, 2))
    """
    size = len(counts)
    upto = [0]
    for count in counts:
        upto.append(upto[-1] + count)
    best: list[Number | None] = [upto[j + 1] * prices[j] for j in range(size)]
    costs: list[Number | None] = [None, best[-1]]
    parents = [tuple([-1] * size)]
    rising = all(a <= b for a, b in pairwise(prices))
    for _ in range(2, min(most, size) + 1):
        best, before = _one_more(best, upto, prices, rising)
        costs.append(best[-1])
        parents.append(before)
    return Choices(tuple(costs), tuple(parents))


def _one_more(
    best: Sequence[Number | None], upto: Sequence[int], prices: Sequence[Number], rising: bool
) -> tuple[list[Number | None], tuple[int, ...]]:
    """Return the best costs with one more cap, and for each the candidate before the last cap.

    The lines of the envelope have falling slopes. Where prices rise, the place of the minimum rises too.
    """
    found: list[Number | None] = []
    before: list[int] = []
    hull: list[tuple[int, Number, int]] = []  # slope, value at 0, candidate
    at = 0
    for j, price in enumerate(prices):
        if not hull:
            found.append(None)
            before.append(-1)
        else:
            if rising:
                at = min(at, len(hull) - 1)
                value = hull[at][0] * price + hull[at][1]
                while at + 1 < len(hull) and (after := hull[at + 1][0] * price + hull[at + 1][1]) <= value:
                    at, value = at + 1, after
            else:
                at = _least(hull, price)
            slope, offset, candidate = hull[at]
            found.append((upto[j + 1] + slope) * price + offset)
            before.append(candidate)
        known = best[j]
        if known is not None:
            _add(hull, -upto[j + 1], known, j)
    return found, tuple(before)


def _add(hull: list[tuple[int, Number, int]], slope: int, offset: Number, candidate: int) -> None:
    """Add a line whose slope is at most that of the last one; remove lines that are nowhere the minimum."""
    if hull and hull[-1][0] == slope:
        if hull[-1][1] <= offset:
            return
        hull.pop()
    while len(hull) > 1:
        slope1, offset1, _ = hull[-2]
        slope2, offset2, _ = hull[-1]
        if (offset - offset1) * (slope1 - slope2) > (offset2 - offset1) * (slope1 - slope):
            break
        hull.pop()
    hull.append((slope, offset, candidate))


def _least(hull: Sequence[tuple[int, Number, int]], at: Number) -> int:
    """Return the index of the line with the least value."""
    low, high = 0, len(hull) - 1
    while low < high:
        middle = (low + high) // 2
        if hull[middle][0] * at + hull[middle][1] <= hull[middle + 1][0] * at + hull[middle + 1][1]:
            high = middle
        else:
            low = middle + 1
    return low
