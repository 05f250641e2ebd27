"""A lower bound on the cost of every plan on a grid, however its caps are placed.

The rows that contain caps cut the grid into bands. A call of a band takes a cap in the band's last row or beyond. It
pays at least the price there, and the band uses no more caps than there are, less one for each band below. So a band
costs at least as much as the best such caps along its last row (``one_symbol``). Dynamic programming finds the bands of
least total cost. Columns give a second bound, with caps that are whole columns; the greater bound counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from symshape.planning.one_symbol import choose_caps

Number = int | float


def least_cost(
    counts: Mapping[tuple[int, int], int], rows: int, columns: int, price: Callable[[int, int], Number], most: int
) -> Number:
    """Return a lower bound on the cost of ``most`` caps on a grid.

    Args:
        counts: how many calls have the pair of candidates as the least that holds them.
        rows: how many candidates there are along the first symbol.
        columns: how many along the second.
        price: what a call padded to a pair of candidates costs.
        most: how many caps at most.

    >>> calls = {(0, 0): 9, (0, 1): 1, (1, 0): 9, (1, 1): 1}
    >>> [least_cost(calls, 2, 2, lambda i, j: (i + 1) * (10 * j + 1), k) for k in (1, 2)]
    [440, 80]
    """
    cheapest: list[list[Number]] = [[price(row, column) for column in range(columns)] for row in range(rows)]
    for row in range(rows - 1, -1, -1):  # the cheapest place that holds this one
        for column in range(columns - 1, -1, -1):
            after = [cheapest[row][column]]
            after += [cheapest[row + 1][column]] if row + 1 < rows else []
            after += [cheapest[row][column + 1]] if column + 1 < columns else []
            cheapest[row][column] = min(after)
    counts = {cell: count for cell, count in counts.items() if count}
    rows, columns = (1 + max((cell[at] for cell in counts), default=-1) for at in range(2))
    if not rows:
        return 0
    cheapest = [row[:columns] for row in cheapest[:rows]]  # beyond the last calls no cap is better
    turned = [list(column) for column in zip(*cheapest, strict=True)]
    flipped = {(column, row): count for (row, column), count in counts.items()}
    return max(_by_bands(counts, cheapest, most), _by_rows(flipped, turned, most))


def _by_bands(counts: Mapping[tuple[int, int], int], cheapest: Sequence[Sequence[Number]], most: int) -> Number:
    """Return the least sum over bands of rows, each served by caps along its last row.

    ``cheapest`` rises along both sides.
    """
    rows, columns = len(cheapest), len(cheapest[0])
    best: list[dict[int, Number]] = [{0: 0}, *({} for _ in range(rows))]  # by the rows done: by bands, the least sum
    for last in range(rows):
        band = [0] * columns
        for first in range(last, -1, -1):
            for column in range(columns):
                band[column] += counts.get((first, column), 0)
            used = [column for column in range(columns) if band[column]]
            choices = choose_caps([band[c] for c in used], [cheapest[last][c] for c in used], most) if used else None
            found = [] if choices is None else [cost for cost in choices.costs if cost is not None]
            least = list(accumulate(found, min))
            for below, cost in best[first].items():
                if least and below >= most:
                    continue
                total = cost + least[min(most - below, len(least)) - 1] if least else cost
                bands = below + bool(least)  # nobody needs a cap for a band without calls
                best[last + 1][bands] = min(best[last + 1].get(bands, total), total)
    return min(best[rows].values())


def _by_rows(counts: Mapping[tuple[int, int], int], cheapest: Sequence[Sequence[Number]], most: int) -> Number:
    """Return the least cost of caps that are whole rows: ``cheapest`` rises along both sides."""
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
