"""Local search for a cheaper plan on a grid, where each call takes the cheapest cap that holds it.

A banded plan (``two_symbols``) is only a good start: a call may fit a cheaper cap of another band. A cap is moved along
either symbol, or removed and put where it saves most, as long as the total cost falls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

Cell = tuple[int, int]
Number = int | float

_STEPS = (-16, -8, -4, -2, -1, 1, 2, 4, 8, 16)
_ROUNDS = 12
_WIDE = 3
"""The number of times that a cap is removed and put anywhere on the grid, which is slower."""


def moved(counts: Mapping[Cell, int], prices: Mapping[Cell, Number], caps: Iterable[Cell]) -> list[Cell]:
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
    return [next((price for price, cap in ordered if _covers(cap, cell)), None) for cell, _ in cells]


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


def _move_one(cells: Sequence[tuple[Cell, int]], prices: Mapping[Cell, Number], caps: list[Cell], index: int) -> bool:
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


def _replace_one(cells: Sequence[tuple[Cell, int]], prices: Mapping[Cell, Number], caps: list[Cell]) -> bool:
    """Remove the cap that is missed least, and put it where it saves most; return whether the cost fell."""
    losses: list[tuple[Number, int, list[Number | None]]] = []
    for index in range(len(caps)):
        others = _without(cells, prices, caps[:index] + caps[index + 1 :])
        if None not in others:
            losses.append((sum(count * (o or 0) for (_, count), o in zip(cells, others, strict=True)), index, others))
    if not losses:
        return False
    _, index, others = min(losses, key=lambda loss: loss[:2])
    heavy = sorted(cells, key=lambda each: -each[1] * (prices.get(each[0]) or 0))
    return _put(cells, prices, caps, index, others, [cell for cell, _ in heavy[:200]])
