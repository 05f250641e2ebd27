"""Candidate sizes to pad calls to, and the limits of a plan: graphs, memory, time to capture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import attrs

from symshape.cost.units import amount
from symshape.errors import InputError
from symshape.planning.prices import Prices, Sizes

MOST_GRAPHS = 32
"""The largest number of graphs of a plan without a limit, whose waste decides how many are taken.
"""

_MANY = 256
"""The largest number of graphs if only the time to capture is limited."""


@attrs.frozen
class Limits:
    """The largest number of graphs (``given``: the caller asked for it), and their peak memory in
    bytes.
    """

    graphs: int
    given: bool
    memory: int | None

    @classmethod
    def of(
        cls,
        max_graphs: int | None,
        memory: int | str | None,
        capture_seconds: float | None,
        seconds_a_graph: float,
    ) -> Limits:
        """Return the limits from the caller's arguments.

        Raises:
            InputError: one is malformed, or they leave no graph.
        """
        if max_graphs is not None and (type(max_graphs) is not int or max_graphs < 1):
            raise InputError(f"max_graphs={max_graphs!r} must be an integer, 1 or more")
        if not 0 < seconds_a_graph < inf:
            raise InputError(f"seconds_a_graph={seconds_a_graph!r} must be positive, and finite")
        graphs = MOST_GRAPHS if max_graphs is None else max_graphs
        if capture_seconds is not None:
            if not 0 <= capture_seconds < inf:
                raise InputError(
                    f"capture_seconds={capture_seconds!r} must be 0 or more, and finite"
                )
            in_time = int(capture_seconds / seconds_a_graph)
            if in_time < 1:
                raise InputError(
                    f"capture_seconds={capture_seconds!r} leaves no graph: one takes "
                    f"{seconds_a_graph} s to capture"
                )
            graphs = min(graphs, in_time) if max_graphs is not None else min(in_time, _MANY)
        given = max_graphs is not None or capture_seconds is not None
        return cls(graphs, given, None if memory is None else amount(memory, "bytes"))


NONE_ALLOWED = (
    "no size that the traffic could be padded to: the guards (or measured times) allow none"
)

NEXT = 4096
"""The number of sizes above a refused one that are searched for one that the guards allow."""

Best = tuple[list[float], list[tuple[Sizes, ...]]]
"""For each number of graphs the cost and the caps of the best plan with at most so many graphs."""


def usable(prices: Prices, sizes: Sizes, memory: int | None) -> bool:
    """Return whether a call can be padded to these sizes, within ``memory`` bytes."""
    return prices.allows(sizes) and (memory is None or (prices.memory(sizes) or 0) <= memory)


def allowed(
    prices: Prices, whole: Callable[[int], Sizes], size: int, near: int = NEXT
) -> int | None:
    """Return the least of ``near`` sizes from ``size`` on that the guards allow; None if they allow
    none.
    """
    return next((each for each in range(size, size + near) if prices.allows(whole(each))), None)


def candidates(
    prices: Prices, counts: Mapping[int, int], whole: Callable[[int], Sizes], memory: int | None
) -> list[int]:
    """Return the sizes to pad to: those that came, or the next that the guards allow; or the
    measured ones.

    Raises:
        InputError: there are none.
    """
    if prices.measured is not None:
        place = next(
            index for index, (a, b) in enumerate(zip(whole(0), whole(1), strict=True)) if a != b
        )
        found = {
            cap[place] for cap in prices.measured if cap == whole(cap[place]) and prices.allows(cap)
        }
    else:
        found = {size for each in counts if (size := allowed(prices, whole, each)) is not None}
    if not found:
        raise InputError(NONE_ALLOWED)
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
