"""Plans along two varying sizes, on a grid of the sizes that came: choice, local search, and a
lower bound.

The cheapest banded plan (:mod:`symshape.planning.dynamic_programming`) is only a good start: a call
may fit a cheaper cap of another band. In the local search a cap moves along either symbol, or is
removed and put where it saves most, as long as the total cost falls. Each call takes the cheapest
cap that holds it.

The bound holds for every plan on the grid, however its caps are placed. The rows that contain caps
cut the grid into bands. A call of a band takes a cap in the band's last row or beyond. It pays at
least the price there, and the band uses no more caps than there are, less one for each band below.
So a band costs at least as much as the best such caps along its last row. Dynamic programming finds
the bands of least total cost. Columns give a second bound, with caps that are whole columns; the
greater bound counts.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from symshape.errors import InputError
from symshape.planning.candidates import NEXT, NONE_ALLOWED, Best, Limits, allowed, at_most, usable
from symshape.planning.dynamic_programming import Number, choose_bands, choose_caps
from symshape.planning.prices import Prices, Sizes
from symshape.planning.traffic import Traffic

Cell = tuple[int, int]

_STEPS = (-16, -8, -4, -2, -1, 1, 2, 4, 8, 16)
_ROUNDS = 12
_WIDE = 3
"""The number of times that a cap is removed and put anywhere on the grid, which is slower."""


def moved(
    counts: Mapping[Cell, int], prices: Mapping[Cell, Number], caps: Iterable[Cell]
) -> list[Cell]:
    """Return caps on the grid that cost no more than the given ones.

    Args:
        counts: how many calls have the cell as the least that holds them.
        prices: what a call padded to a cell costs; a cell that is missing is no cap.
        caps: cells, which together hold all calls.

    >>> counts = {(0, 0): 9, (0, 1): 1, (1, 0): 9, (1, 1): 1}
    >>> prices = {(i, j): (i + 1) * (10 * j + 1) for i, j in counts}
    >>> sorted(moved(counts, prices, [(0, 1), (1, 1)]))
    [(1, 0), (1, 1)]
    """
    found = list(dict.fromkeys(caps))
    cells = list(counts.items())
    wide = _WIDE
    for _ in range(_ROUNDS):
        if sum(_move_one(cells, prices, found, index) for index in range(len(found))):
            continue
        if not wide or not _replace_one(cells, prices, found):
            break
        wide -= 1
    return found


def _covers(cap: Cell, cell: Cell) -> bool:
    return cap[0] >= cell[0] and cap[1] >= cell[1]


def _without(
    cells: Sequence[tuple[Cell, int]], prices: Mapping[Cell, Number], caps: Sequence[Cell]
) -> list[Number | None]:
    """Return for each cell the price of the cheapest cap that holds it; None if none does."""
    ordered = sorted((prices[cap], cap) for cap in caps)
    return [
        next((price for price, cap in ordered if _covers(cap, cell)), None) for cell, _ in cells
    ]


def _cost(
    cells: Sequence[tuple[Cell, int]], others: Sequence[Number | None], cap: Cell, price: Number
) -> Number | None:
    """Return the total cost with one more cap; None if a cell is held by none."""
    found: Number = 0
    for (cell, count), other in zip(cells, others, strict=True):
        if _covers(cap, cell) and (other is None or price < other):
            found += price * count
        elif other is None:
            return None
        else:
            found += other * count
    return found


def _move_one(
    cells: Sequence[tuple[Cell, int]], prices: Mapping[Cell, Number], caps: list[Cell], index: int
) -> bool:
    """Move a cap to the neighbour that saves most (in place); return whether the cost fell."""
    others = _without(cells, prices, caps[:index] + caps[index + 1 :])
    return _put(cells, prices, caps, index, others, _neighbours(caps[index]))


def _neighbours(cap: Cell) -> Iterator[Cell]:
    for step in _STEPS:
        yield cap[0] + step, cap[1]
        yield cap[0], cap[1] + step
    yield from ((cap[0] + i, cap[1] + j) for i in (-1, 1) for j in (-4, -1, 1, 4))


def _put(
    cells: Sequence[tuple[Cell, int]],
    prices: Mapping[Cell, Number],
    caps: list[Cell],
    index: int,
    others: Sequence[Number | None],
    places: Iterable[Cell],
) -> bool:
    now = _cost(cells, others, caps[index], prices[caps[index]])
    best, chosen = now, caps[index]
    for place in places:
        if place in prices and place not in caps:
            cost = _cost(cells, others, place, prices[place])
            if cost is not None and (best is None or cost < best):
                best, chosen = cost, place
    caps[index] = chosen
    return best is not now


def _replace_one(
    cells: Sequence[tuple[Cell, int]], prices: Mapping[Cell, Number], caps: list[Cell]
) -> bool:
    """Remove the cap that is missed least, and put it where it saves most; return whether the cost
    fell.
    """
    losses: list[tuple[Number, int, list[Number | None]]] = []
    for index in range(len(caps)):
        others = _without(cells, prices, caps[:index] + caps[index + 1 :])
        if None not in others:
            losses.append(
                (
                    sum(count * (o or 0) for (_, count), o in zip(cells, others, strict=True)),
                    index,
                    others,
                )
            )
    if not losses:
        return False
    _, index, others = min(losses, key=lambda loss: loss[:2])
    heavy = sorted(cells, key=lambda each: -each[1] * (prices.get(each[0]) or 0))
    return _put(cells, prices, caps, index, others, [cell for cell, _ in heavy[:200]])


def least_cost(
    counts: Mapping[tuple[int, int], int],
    rows: int,
    columns: int,
    price: Callable[[int, int], Number],
    most: int,
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
    cheapest: list[list[Number]] = [
        [price(row, column) for column in range(columns)] for row in range(rows)
    ]
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


def _by_bands(
    counts: Mapping[tuple[int, int], int], cheapest: Sequence[Sequence[Number]], most: int
) -> Number:
    """Return the least sum over bands of rows, each served by caps along its last row.

    ``cheapest`` rises along both sides.
    """
    rows, columns = len(cheapest), len(cheapest[0])
    # by the rows done: by bands, the least sum
    best: list[dict[int, Number]] = [{0: 0}, *({} for _ in range(rows))]
    for last in range(rows):
        band = [0] * columns
        for first in range(last, -1, -1):
            for column in range(columns):
                band[column] += counts.get((first, column), 0)
            used = [column for column in range(columns) if band[column]]
            choices = (
                choose_caps([band[c] for c in used], [cheapest[last][c] for c in used], most)
                if used
                else None
            )
            found = [] if choices is None else [cost for cost in choices.costs if cost is not None]
            least = list(accumulate(found, min))
            for below, cost in best[first].items():
                if least and below >= most:
                    continue
                total = cost + least[min(most - below, len(least)) - 1] if least else cost
                bands = below + bool(least)  # nobody needs a cap for a band without calls
                best[last + 1][bands] = min(best[last + 1].get(bands, total), total)
    return min(best[rows].values())


def _by_rows(
    counts: Mapping[tuple[int, int], int], cheapest: Sequence[Sequence[Number]], most: int
) -> Number:
    """Return the least cost of caps that are whole rows: ``cheapest`` rises along both sides."""
    rows = len(cheapest)
    in_row: list[list[tuple[int, int]]] = [[] for _ in range(rows)]
    for (row, column), count in counts.items():
        in_row[row].append((column, count))
    # upto[cap][row]: what the calls of all rows before this one cost, padded to the row ``cap``
    upto = [
        list(
            accumulate(
                (sum(cheapest[cap][c] * n for c, n in cells) for cells in in_row[: cap + 1]),
                initial=0,
            )
        )
        for cap in range(rows)
    ]
    best = [upto[cap][cap + 1] for cap in range(rows)]
    least = best[-1]
    for _ in range(2, min(most, rows) + 1):
        best = [
            min(
                best[cap],
                *(best[below] + upto[cap][cap + 1] - upto[cap][below + 1] for below in range(cap)),
            )
            if cap
            else best[0]
            for cap in range(rows)
        ]
        least = min(least, best[-1])
    return least


_GRID = (16, 64)
"""The largest number of candidates along the two symbols of a grid, the coarser one first."""
_OTHERS = 4
"""The greatest other sizes beside which an allowed candidate is searched."""
_BESIDE = 16
"""The number of sizes that are tried for a further candidate."""
_NEVER = 10**40
"""The price of an impossible cap."""


class _Calls:
    """Calls of two varying sizes, on a grid of candidate sizes.

    Attributes:
        rows, columns: the grid; the rows are along the symbol that took fewer values.
        caps: for each pair of places on the grid that a call can be padded to the price.
        cells: for each pair of places on the grid how many calls it is the least for that holds
            them.
        left: what the calls cost that no cap holds.
    """

    def __init__(
        self, prices: Prices, seen: Traffic, varying: Sequence[str], memory: int | None
    ) -> None:
        points = seen.along(varying)
        different = [len({point[index] for point in points}) for index in range(2)]
        first = 0 if different[0] <= different[1] else 1
        self.prices = prices
        self._axes = [
            prices.symbols.index(varying[first]),
            prices.symbols.index(varying[1 - first]),
        ]
        self._fixed = seen.fixed
        self._base = [seen.fixed.get(name, 0) for name in prices.symbols]
        histogram = {(point[first], point[1 - first]): count for point, count in points.items()}
        self.rows = _grid(prices, histogram, 0, self.whole, self.alone)
        self.columns = _grid(prices, histogram, 1, self.whole, self.alone, self.rows)
        self.caps: dict[Cell, Number] = {
            (row, column): prices.at(cap)
            for row in range(len(self.rows))
            for column in range(len(self.columns))
            if usable(prices, cap := self.whole(self.rows[row], self.columns[column]), memory)
        }
        self._holding = self._cheapest()
        self.cells: dict[Cell, int] = {}
        self.left: float = 0
        for (row, column), count in histogram.items():
            cell = bisect.bisect_left(self.rows, row), bisect.bisect_left(self.columns, column)
            if cell in self._holding:
                self.cells[cell] = self.cells.get(cell, 0) + count
            else:
                self.left += prices.exact(self.whole(row, column)) * count

    def whole(self, row: int, column: int) -> Sizes:
        """Return two sizes, completed by the sizes that never vary."""
        sizes = list(self._base)
        sizes[self._axes[0]], sizes[self._axes[1]] = row, column
        return tuple(sizes)

    def alone(self, index: int, size: int) -> int | None:
        """Return the least size from ``size`` on that the guards on this size alone allow.

        Args:
            index: 0 for the size along the rows, 1 for that along the columns.
            size: the size that came.
        """
        name = self.prices.symbols[self._axes[index]]
        near = range(size, size + NEXT)
        may = self.prices.may
        return next((each for each in near if may({**self._fixed, name: each})), None)

    def _cheapest(self) -> dict[Cell, tuple[Number, Cell]]:
        """Return for each place of the grid the cheapest cap that holds it, with its price."""
        found: dict[Cell, tuple[Number, Cell]] = {}
        for row in range(len(self.rows) - 1, -1, -1):
            for column in range(len(self.columns) - 1, -1, -1):
                here = (row, column)
                near = [
                    found[each] for each in ((row + 1, column), (row, column + 1)) if each in found
                ]
                near += [(self.caps[here], here)] if here in self.caps else []
                if near:
                    found[here] = min(near)
        return found

    def cap(self, row: int, column: int) -> Sizes:
        """Return the sizes of the cheapest cap that holds a place of the grid."""
        return self.sizes(self._holding[row, column][1])

    def sizes(self, place: Cell) -> Sizes:
        """Return the sizes at a place of the grid."""
        return self.whole(self.rows[place[0]], self.columns[place[1]])

    def place(self, cap: Sizes) -> tuple[int, int]:
        """Return the place of a cap on the grid."""
        row, column = (cap[axis] for axis in self._axes)
        return self.rows.index(row), self.columns.index(column)

    def price(self, row: int, column: int) -> int | float:
        """Return the price of the cheapest cap that holds a place; ``_NEVER`` if none does."""
        found = self._holding.get((row, column))
        return _NEVER if found is None else found[0]


def along_two(prices: Prices, seen: Traffic, varying: Sequence[str], limits: Limits) -> Best:
    """Return the best banded plans on a grid of the sizes that came along two symbols.

    Raises:
        InputError: nothing fits.
    """
    calls = _Calls(prices, seen, varying, limits.memory)
    if not calls.cells:
        raise InputError(NONE_ALLOWED)
    found = choose_bands(
        calls.cells, len(calls.rows), len(calls.columns), calls.price, limits.graphs
    )
    plans = [
        (
            (None, ())
            if cost is None or cost >= _NEVER
            else (cost + calls.left, tuple(dict.fromkeys(calls.cap(*pair) for pair in pairs)))
        )
        for cost, pairs in zip(found.costs, found.plans, strict=True)
    ]
    return at_most(plans[1:])


def improved(
    prices: Prices, seen: Traffic, varying: Sequence[str], limits: Limits, caps: Sequence[Sizes]
) -> tuple[Sizes, ...]:
    """Return a banded plan improved by local search, where each call takes its cheapest cap."""
    calls = _Calls(prices, seen, varying, limits.memory)
    return tuple(map(calls.sizes, moved(calls.cells, calls.caps, map(calls.place, caps))))


def least(
    prices: Prices, seen: Traffic, varying: Sequence[str], limits: Limits, graphs: int
) -> float:
    """Return a lower bound on the cost of any plan of so many graphs on the grid."""
    calls = _Calls(prices, seen, varying, limits.memory)
    return calls.left + least_cost(
        calls.cells, len(calls.rows), len(calls.columns), calls.price, graphs
    )


def _grid(
    prices: Prices,
    histogram: Mapping[tuple[int, int], int],
    index: int,
    whole: Callable[[int, int], Sizes],
    alone: Callable[[int, int], int | None],
    rows: Sequence[int] | None = None,
) -> list[int]:
    """Return candidates for the rows, or for the columns beside these ``rows``.

    They are all sizes that came, or quantiles of the calls if those are too many; the measured
    sizes if prices were measured.

    A size that the guards refuse is replaced by the next one that they allow beside the greatest
    other size, and by those beside others as long as there are few candidates; a call that no
    allowed size holds has no candidate.
    """
    if prices.measured is not None:
        axis = next(
            i
            for i, (a, b) in enumerate(zip(whole(0, 0), whole(1 - index, index), strict=True))
            if a != b
        )
        return sorted({cap[axis] for cap in prices.measured})
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

    def along(other: int) -> Callable[[int], Sizes]:
        return lambda size: whole(size, other) if index == 0 else whole(other, size)

    def across(size: int) -> Callable[[int], Sizes]:
        return lambda other: whole(size, other)

    starts = [least for each in ordered if (least := alone(index, each)) is not None]
    others = [] if rows is None else list(rows[: -_OTHERS - 1 : -1])
    for each in sorted({point[1] for point in histogram}, reverse=True) if rows is None else ():
        least = alone(1, each)
        if least is not None and len(others) < _OTHERS:
            beside = (allowed(prices, across(size), least) for size in starts[: -_OTHERS - 1 : -1])
            others.append(next((size for size in beside if size is not None), least))
    found: set[int] = set()
    more: set[int] = set()
    for least in starts:
        beside = (allowed(prices, along(other), least) for other in others)
        nearest = next((size for size in beside if size is not None), None)
        if nearest is not None:
            found.add(nearest)
        if len(starts) < most:
            every = (allowed(prices, along(other), least, _BESIDE) for other in others)
            more.update(size for size in every if size is not None)
    return sorted({*found, *sorted(more - found)[: max(0, most - len(found))]})
