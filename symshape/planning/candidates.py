"""Candidate sizes to pad calls to: those that the guards, the memory and the measured times allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from symshape.errors import InputError
from symshape.planning.prices import Prices, Sizes

NEXT = 4096
"""The number of sizes above a refused one that are searched for one that the guards allow."""

Best = tuple[list[float], list[tuple[Sizes, ...]]]
"""For each number of graphs the cost and the caps of the best plan with at most so many graphs."""


def usable(prices: Prices, sizes: Sizes, memory: int | None) -> bool:
    """Return whether a call can be padded to these sizes, within ``memory`` bytes."""
    return prices.allows(sizes) and (memory is None or (prices.memory(sizes) or 0) <= memory)


def allowed(prices: Prices, whole: Callable[[int], Sizes], size: int) -> int | None:
    """Return the least size from ``size`` on that the guards allow; None if none is near."""
    return next((each for each in range(size, size + NEXT) if prices.allows(whole(each))), None)


def candidates(
    prices: Prices, counts: Mapping[int, int], whole: Callable[[int], Sizes], memory: int | None
) -> list[int]:
    """Return the sizes to pad to: those that came, or the next that the guards allow; or the measured ones.

    Raises:
        InputError: there are none.
    """
    if prices.measured is not None:
        place = next(index for index, (a, b) in enumerate(zip(whole(0), whole(1), strict=True)) if a != b)
        found = {cap[place] for cap in prices.measured if cap == whole(cap[place]) and prices.allows(cap)}
    else:
        found = {size for each in counts if (size := allowed(prices, whole, each)) is not None}
    if not found:
        raise InputError("no size that the traffic could be padded to: the guards (or measured times) allow none")
    fitting = sorted(size for size in found if usable(prices, whole(size), memory))
    if not fitting:
        least = prices.memory(whole(min(found)))
        raise InputError(f"no graph fits in memory={memory:,} bytes: the smallest needs {least:,}")
    return fitting


def at_most(found: Sequence[tuple[Any, tuple[Sizes, ...]]]) -> Best:
    """Return the best plans with at most so many caps, from those with exactly so many.

    Raises:
        InputError: there is no plan at all.
    """
    curve: list[float] = []
    choices: list[tuple[Sizes, ...]] = []
    for cost, caps in found:
        if cost is not None and (not curve or cost < curve[-1]):
            curve.append(cost)
            choices.append(caps)
        elif curve:
            curve.append(curve[-1])
            choices.append(choices[-1])
    if not curve:
        raise InputError("no plan within the limits: allow more graphs or more memory")
    return curve, choices
