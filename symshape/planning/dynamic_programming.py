"""Caps chosen by dynamic programming: along one symbol exactly the cheapest, along two the cheapest
in bands.

*One symbol.* A call is padded to the least cap that holds it. Let ``c`` be the prices at the
candidates, and ``F`` the calls up to each. The best way to serve the calls up to candidate ``j``
with ``k`` caps is the minimum over ``i`` of ``best[k-1][i] + (F[j] - F[i]) * c[j]``. For each ``j``
this is the minimum of lines at ``c[j]``. Their lower envelope finds it, in ``O(k n log n)`` in all,
for every number of caps at once.

*Two symbols.* The grid of candidates is cut into bands of the first symbol, each with caps of its
own along the second. For each band the best caps along the second symbol are known for every number
of caps. Another dynamic program distributes the caps over the bands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import attrs

Number = int | float


@attrs.frozen
class Choices:
    """The best caps for each number of caps.

    Attributes:
        costs: ``costs[k]``: what all calls cost with ``k`` caps; None for no caps.
        parents: for each number of caps, and each candidate as the last cap, the candidate before
            (-1 for none).
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
    """Return the best caps among candidates in ascending order, for each number of caps from 1 to
    ``most``.

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

    The lines of the envelope have falling slopes. Where prices rise, the place of the minimum rises
    too.
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
                while (
                    at + 1 < len(hull)
                    and (after := hull[at + 1][0] * price + hull[at + 1][1]) <= value
                ):
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
    """Add a line whose slope is at most that of the last one; remove lines that are nowhere the
    minimum.
    """
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


@attrs.frozen
class Banded:
    """The best banded plans.

    Attributes:
        costs: ``costs[k]``: what all calls cost with ``k`` caps; None where that many bring
            nothing.
        plans: ``plans[k]``: the caps as pairs of candidates' indices.
    """

    costs: tuple[Number | None, ...]
    plans: tuple[tuple[tuple[int, int], ...], ...]


@attrs.frozen
class _State:
    cost: Number
    before: tuple[int, int]  # the band's first candidate, and the caps left for what is below
    choices: Choices | None
    count: int
    columns: tuple[int, ...]


def choose_bands(
    counts: Mapping[tuple[int, int], int],
    rows: int,
    columns: int,
    price: Callable[[int, int], Number],
    most: int,
) -> Banded:
    """Return the best caps on a grid of ``rows`` by ``columns`` candidates, for each number of caps
    up to ``most``.

    Args:
        counts: how many calls have the pair of candidates as the least that holds them.
        rows: how many candidates there are along the first symbol.
        columns: how many along the second.
        price: what a call padded to a pair of candidates costs.
        most: how many caps at most.

    >>> calls = {(0, 0): 9, (0, 1): 1, (1, 0): 9, (1, 1): 1}
    >>> found = choose_bands(calls, 2, 2, lambda i, j: (i + 1) * (10 * j + 1), 4)
    >>> found.costs, found.plans[2]
    ((None, 440, 80, 150, 60), ((1, 0), (1, 1)))
    """
    table: list[dict[int, _State]] = [
        {0: _State(0, (-1, 0), None, 0, ())},
        *({} for _ in range(rows)),
    ]
    for last in range(rows):
        band = [0] * columns
        prices = [price(last, column) for column in range(columns)]
        for first in range(last, -1, -1):
            for column in range(columns):
                band[column] += counts.get((first, column), 0)
            used = [column for column in range(columns) if band[column]]
            if not used:  # no caps are needed
                _improve(table, first, last, None, (0,), (), most)
                continue
            choices = choose_caps(
                [band[column] for column in used], [prices[column] for column in used], most
            )
            _improve(table, first, last, choices, range(1, len(choices.costs)), tuple(used), most)
    return _read(table, rows, most)


def _improve(
    table: list[dict[int, _State]],
    first: int,
    last: int,
    choices: Choices | None,
    numbers: Sequence[int],
    columns: tuple[int, ...],
    most: int,
) -> None:
    """Record this band, served by ``numbers`` of caps, above the best plans below it, where the sum
    is the least.
    """
    for below, state in table[first].items():
        for number in numbers:
            added = 0 if choices is None else choices.costs[number]
            total = below + number
            if added is None or total > most:
                continue
            known = table[last + 1].get(total)
            if known is None or state.cost + added < known.cost:
                table[last + 1][total] = _State(
                    state.cost + added, (first, below), choices, number, columns
                )


def _read(table: list[dict[int, _State]], rows: int, most: int) -> Banded:
    costs: list[Number | None] = [None]
    plans: list[tuple[tuple[int, int], ...]] = [()]
    for total in range(1, most + 1):
        state = table[rows].get(total)
        costs.append(None if state is None else state.cost)
        pairs: list[tuple[int, int]] = []
        row, left = rows, total
        while state is not None and row > 0:
            if state.choices is not None:
                pairs += [
                    (row - 1, state.columns[index]) for index in state.choices.caps(state.count)
                ]
            row, left = state.before
            state = table[row][left]
        plans.append(tuple(sorted(pairs)))
    return Banded(tuple(costs), tuple(plans))
