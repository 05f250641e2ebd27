"""Handmade lists of caps for the same traffic, with at most as many graphs as a plan: the comparison."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence

from symshape.planning.lists import geometric, like_vllm, thinned
from symshape.planning.prices import Prices, Sizes
from symshape.planning.traffic import Traffic

Make = Callable[[Sequence[int], int], tuple[int, ...]]


def _geometric(sizes: Sequence[int], count: int) -> tuple[int, ...]:
    return geometric(min(sizes), max(sizes), count)


def _like_vllm(sizes: Sequence[int], count: int) -> tuple[int, ...]:
    return thinned(like_vllm(max(sizes)), count)


LISTS: dict[str, Make] = {"geometric": _geometric, "like vLLM's, thinned": _like_vllm}
"""The makers of lists, by name: from the sizes that came, and a maximal number of caps."""


def compared_with(prices: Prices, seen: Traffic, graphs: int) -> dict[str, tuple[Sizes, ...]]:
    """Return the caps of each kind of list, if a price is known for any size.

    Along two sizes the lists are multiplied; the graphs are shared out in the best way.
    """
    varying = [name for name in prices.symbols if name in seen.varying]
    if prices.measured is not None or not varying:
        return {}
    found = {name: _best_product(prices, seen, varying, graphs, make) for name, make in LISTS.items()}
    return {name: caps for name, caps in found.items() if caps}


def _best_product(prices: Prices, seen: Traffic, varying: Sequence[str], graphs: int, make: Make) -> tuple[Sizes, ...]:
    points = seen.along(varying)
    sizes = [sorted({point[index] for point in points}) for index in range(len(varying))]
    best: tuple[float, tuple[Sizes, ...]] | None = None
    for share in _shares(graphs, len(varying)):
        lists = [make(each, count) for each, count in zip(sizes, share, strict=True)]
        caps = [_whole(prices, seen, varying, chosen) for chosen in itertools.product(*lists)]
        caps = [cap for cap in caps if prices.allows(cap)]
        cells: dict[tuple[int, ...], int] = {}
        for point, count in points.items():
            cell = tuple(caps_[bisect.bisect_left(caps_, size)] for caps_, size in zip(lists, point, strict=True))
            cells[cell] = cells.get(cell, 0) + count
        cost = sum(prices.at(_whole(prices, seen, varying, cell)) * count for cell, count in cells.items())
        if caps and (best is None or cost < best[0]):
            best = cost, tuple(caps)
    return () if best is None else best[1]


def _shares(graphs: int, axes: int) -> list[tuple[int, ...]]:
    if axes == 1:
        return [(graphs,)]
    powers = [1 << power for power in range(graphs.bit_length())]
    return sorted({(i, graphs // i) for i in powers} | {(graphs // i, i) for i in powers})


def _whole(prices: Prices, seen: Traffic, varying: Sequence[str], chosen: Sequence[int]) -> Sizes:
    given = {**seen.fixed, **dict(zip(varying, chosen, strict=True))}
    return tuple(given[name] for name in prices.symbols)
