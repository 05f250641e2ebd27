"""Handmade lists of caps, geometric ones and the sizes that vLLM captures: the comparison for a
plan.

They are made for the same traffic, with at most as many graphs as the plan.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence

from symshape.planning.prices import Prices, Sizes
from symshape.planning.traffic import Traffic


def geometric(least: int, greatest: int, count: int) -> tuple[int, ...]:
    """Return at most ``count`` caps from ``least`` to ``greatest``, in a geometric sequence.

    >>> geometric(1, 64, 4)
    (1, 4, 16, 64)
    """
    if count == 1 or least >= greatest:
        return (greatest,)
    least = max(least, 1)
    ratio = (greatest / least) ** (1 / (count - 1))
    found = {min(greatest, -int(-least * ratio**step // 1)) for step in range(count - 1)} | {
        greatest
    }
    return tuple(sorted(found))


def like_vllm(greatest: int) -> tuple[int, ...]:
    """Return the sizes that vLLM captures by default, up to ``greatest``: 1, 2, 4, every 8 up to
    256, then every 16.

    >>> like_vllm(40)
    (1, 2, 4, 8, 16, 24, 32, 40)
    """
    steps = (1, 2, 4, *range(8, min(greatest, 256) + 1, 8), *range(272, greatest + 1, 16))
    return tuple(sorted({*(step for step in steps if step <= greatest), greatest}))


def thinned(caps: Sequence[int], count: int) -> tuple[int, ...]:
    """Return ``count`` of the caps, evenly spread, the last one among them.

    >>> thinned((1, 2, 4, 8, 16, 24), 3)
    (2, 8, 24)
    """
    if count >= len(caps):
        return tuple(caps)
    return tuple(caps[-(-(step * len(caps)) // count) - 1] for step in range(1, count + 1))


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
    found = {
        name: _best_product(prices, seen, varying, graphs, make) for name, make in LISTS.items()
    }
    return {name: caps for name, caps in found.items() if caps}


def _best_product(
    prices: Prices, seen: Traffic, varying: Sequence[str], graphs: int, make: Make
) -> tuple[Sizes, ...]:
    points = seen.along(varying)
    sizes = [sorted({point[index] for point in points}) for index in range(len(varying))]
    best: tuple[float, tuple[Sizes, ...]] | None = None
    for share in _shares(graphs, len(varying)):
        lists = [make(each, count) for each, count in zip(sizes, share, strict=True)]
        caps = [_whole(prices, seen, varying, chosen) for chosen in itertools.product(*lists)]
        caps = [cap for cap in caps if prices.allows(cap)]
        cells: dict[tuple[int, ...], int] = {}
        for point, count in points.items():
            cell = tuple(
                caps_[bisect.bisect_left(caps_, size)]
                for caps_, size in zip(lists, point, strict=True)
            )
            cells[cell] = cells.get(cell, 0) + count
        cost = sum(
            prices.exact(_whole(prices, seen, varying, cell)) * count
            for cell, count in cells.items()
        )
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
