"""Plans along two varying sizes, on a grid of the sizes that came."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence

from symshape.planning.bounds import least_cost
from symshape.planning.candidates import Best, allowed, at_most, usable
from symshape.planning.limits import Limits
from symshape.planning.moves import moved
from symshape.planning.prices import Prices, Sizes
from symshape.planning.traffic import Traffic
from symshape.planning.two_symbols import choose_bands

_GRID = (16, 64)
"""The largest number of candidates along the two symbols of a grid, the coarser one first."""
_NEVER = 10**40
"""The price of an impossible cap."""


class _Calls:
    """Calls of two varying sizes, on a grid of candidate sizes.

    Attributes:
        rows, columns: the grid; the rows are along the symbol that took fewer values.
        cells: for each pair of places on the grid how many calls it is the least for that holds them.
        left: what the calls cost that nothing on the grid holds.
    """

    def __init__(self, prices: Prices, seen: Traffic, varying: Sequence[str], memory: int | None) -> None:
        points = seen.along(varying)
        different = [len({point[index] for point in points}) for index in range(2)]
        first = 0 if different[0] <= different[1] else 1
        self.prices = prices
        self.memory = memory
        self._axes = [prices.symbols.index(varying[first]), prices.symbols.index(varying[1 - first])]
        self._base = [seen.fixed.get(name, 0) for name in prices.symbols]
        histogram = {(point[first], point[1 - first]): count for point, count in points.items()}
        self.rows, self.columns = (_grid(prices, histogram, index, self.whole) for index in range(2))
        self.cells: dict[tuple[int, int], int] = {}
        self.left: float = 0
        for (row, column), count in histogram.items():
            cell = bisect.bisect_left(self.rows, row), bisect.bisect_left(self.columns, column)
            held = cell[0] < len(self.rows) and cell[1] < len(self.columns)
            if held and usable(prices, self.cap(*cell), memory):
                self.cells[cell] = self.cells.get(cell, 0) + count
            else:
                self.left += prices.exact(self.whole(row, column)) * count

    def whole(self, row: int, column: int) -> Sizes:
        """Return two sizes, completed by the sizes that never vary."""
        sizes = list(self._base)
        sizes[self._axes[0]], sizes[self._axes[1]] = row, column
        return tuple(sizes)

    def cap(self, row: int, column: int) -> Sizes:
        """Return the sizes at a place of the grid."""
        return self.whole(self.rows[row], self.columns[column])

    def place(self, cap: Sizes) -> tuple[int, int]:
        """Return the place of a cap on the grid."""
        row, column = (cap[axis] for axis in self._axes)
        return self.rows.index(row), self.columns.index(column)

    def price(self, row: int, column: int) -> int | float:
        """Return the price at a place of the grid; ``_NEVER`` where no cap can be."""
        cap = self.cap(row, column)
        return self.prices.at(cap) if usable(self.prices, cap, self.memory) else _NEVER


def along_two(prices: Prices, seen: Traffic, varying: Sequence[str], limits: Limits) -> Best:
    """Return the best banded plans on a grid of the sizes that came along two symbols.

    Raises:
        InputError: nothing fits.
    """
    calls = _Calls(prices, seen, varying, limits.memory)
    found = choose_bands(calls.cells, len(calls.rows), len(calls.columns), calls.price, limits.graphs)
    plans = [
        (None if cost is None or cost >= _NEVER else cost + calls.left, tuple(calls.cap(*pair) for pair in pairs))
        for cost, pairs in zip(found.costs, found.plans, strict=True)
    ]
    return at_most(plans[1:])


def improved(
    prices: Prices, seen: Traffic, varying: Sequence[str], limits: Limits, caps: Sequence[Sizes]
) -> tuple[Sizes, ...]:
    """Return a banded plan improved by local search, where each call takes its cheapest cap."""
    calls = _Calls(prices, seen, varying, limits.memory)
    places = ((row, column) for row in range(len(calls.rows)) for column in range(len(calls.columns)))
    known = {place: price for place in places if (price := calls.price(*place)) < _NEVER}
    return tuple(calls.cap(*place) for place in moved(calls.cells, known, map(calls.place, caps)))


def least(prices: Prices, seen: Traffic, varying: Sequence[str], limits: Limits, graphs: int) -> float:
    """Return a lower bound on the cost of any plan of so many graphs on the grid."""
    calls = _Calls(prices, seen, varying, limits.memory)
    return calls.left + least_cost(calls.cells, len(calls.rows), len(calls.columns), calls.price, graphs)


def _grid(
    prices: Prices,
    histogram: Mapping[tuple[int, int], int],
    index: int,
    whole: Callable[[int, int], Sizes],
) -> list[int]:
    """Return candidates along one of the two sizes: all that came, or quantiles of the calls if they are too many."""
    counts: dict[int, int] = {}
    for point, count in histogram.items():
        counts[point[index]] = counts.get(point[index], 0) + count
    most = _GRID[index]
    ordered = sorted(counts)
    if len(ordered) > most:
        total, reached, chosen = sum(counts.values()), 0, [ordered[-1]]
        for size in ordered:
            reached += counts[size]
            if reached * most >= total * len(chosen):
                chosen.append(size)
        ordered = sorted(set(chosen))
    other = max(point[1 - index] for point in histogram)

    def along(size: int) -> Sizes:
        return whole(size, other) if index == 0 else whole(other, size)

    found = {allowed(prices, along, each) for each in ordered}
    return sorted(size for size in found if size is not None)
