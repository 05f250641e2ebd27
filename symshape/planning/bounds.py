"""A bound under which no plan on a grid can come, however its caps are placed.

Any caps lie in no more different rows than there are caps.  So no plan is cheaper than one whose caps are whole rows,
in which every call takes the cheapest place of the row that holds it; and the best of those is found by dynamic
programming.  The same holds for columns; the greater of the two is the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

Number = int | float


def least_cost(
    counts: Mapping[tuple[int, int], int], rows: int, columns: int, price: Callable[[int, int], Number], most: int
) -> Number:
    """What ``most`` caps on a grid cost at least.

    Args:
        counts: how many calls have the pair of candidates as the least that holds them.
        rows: how many candidates there are along the first symbol.
        columns: how many along the second.
        price: what a call padded to a pair of candidates costs.
        most: how many caps at most.

    >>> calls = {(0, 0): 9, (0, 1): 1, (1, 0): 9, (1, 1): 1}
    >>> [least_cost(calls, 2, 2, lambda i, j: (i + 1) * (10 * j + 1), k) for k in (1, 2)]
    [330, 60]
    """
    cheapest: list[list[Number]] = [[price(row, column) for column in range(columns)] for row in range(rows)]
    for row in range(rows - 1, -1, -1):  # the cheapest place that holds this one
        for column in range(columns - 1, -1, -1):
            after = [cheapest[row][column]]
            after += [cheapest[row + 1][column]] if row + 1 < rows else []
            after += [cheapest[row][column + 1]] if column + 1 < columns else []
            cheapest[row][column] = min(after)
    turned = [list(column) for column in zip(*cheapest, strict=True)]
    flipped = {(column, row): count for (row, column), count in counts.items()}
    return max(_by_rows(counts, cheapest, most), _by_rows(flipped, turned, most))


def _by_rows(counts: Mapping[tuple[int, int], int], cheapest: Sequence[Sequence[Number]], most: int) -> Number:
    """The least cost of caps that are whole rows: ``cheapest`` rises along both sides."""
    rows = len(cheapest)
    in_row: list[list[tuple[int, int]]] = [[] for _ in range(rows)]
    for (row, column), count in counts.items():
        in_row[row].append((column, count))
    # upto[cap][row]: what the calls of all rows before this one cost, padded to the row ``cap``
    upto = [
        list(accumulate((sum(cheapest[cap][c] * n for c, n in cells) for cells in in_row[: cap + 1]), initial=0))
        for cap in range(rows)
    ]
    best = [upto[cap][cap + 1] for cap in range(rows)]
    least = best[-1]
    for _ in range(2, min(most, rows) + 1):
        best = [
            min(best[cap], *(best[below] + upto[cap][cap + 1] - upto[cap][below + 1] for below in range(cap)))
            if cap
            else best[0]
            for cap in range(rows)
        ]
        least = min(least, best[-1])
    return least
