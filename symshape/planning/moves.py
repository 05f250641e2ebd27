"""Making a plan on a grid cheaper by moving its caps one at a time, each call taking the cheapest cap that holds it.

Bands (``two_symbols``) are a good start and no more: a call may fit a cheaper cap of another band.  A cap is moved
along either symbol, or taken out and put where it saves most, as long as the sum gets less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

Cell = tuple[int, int]
Number = int | float

_STEPS = (-16, -8, -4, -2, -1, 1, 2, 4, 8, 16)
_ROUNDS = 12
_WIDE = 3
"""How often a cap is taken out and put anywhere on the grid, which is slower."""


def moved(counts: Mapping[Cell, int], prices: Mapping[Cell, Number], caps: Iterable[Cell]) -> list[Cell]:
    """Caps on the grid that cost no more than those given.

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
    """For each cell the price of the cheapest of the caps that holds it; None for none."""
    ordered = sorted((prices[cap], cap) for cap in caps)
    return [next((price for price, cap in ordered if _covers(cap, cell)), None) for cell, _ in cells]


def _cost(
    cells: Sequence[tuple[Cell, int]], others: Sequence[Number | None], cap: Cell, price: Number
) -> Number | None:
    """The sum with one cap more; None where a cell is held by none."""
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
    """Moves a cap to where it saves most among its neighbours (in place); whether that made the sum less."""
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
    """Takes out the cap that is missed least, and puts it where it saves most."""
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
