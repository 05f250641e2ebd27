"""The best caps for traffic, along one or two varying sizes."""

from __future__ import annotations

from collections.abc import Sequence

from symshape.errors import InputError
from symshape.planning.along_one import along_one
from symshape.planning.along_two import along_two, improved, least
from symshape.planning.candidates import Best
from symshape.planning.limits import Limits
from symshape.planning.prices import Prices, Sizes
from symshape.planning.traffic import Traffic


def best_caps(prices: Prices, seen: Traffic, limits: Limits, objective: str) -> Best:
    """Return for each number of graphs the cost and the caps of the best plan with at most so many graphs.

    Raises:
        InputError: more than two sizes vary, nothing fits, or the objective does not.
    """
    varying = [name for name in prices.symbols if name in seen.varying]
    if len(varying) > 2:
        named = ", ".join(varying)
        advice = _advice(seen, varying)
        raise InputError(f"{len(varying)} sizes vary ({named}), and a plan is made along one or two. {advice}")
    if objective == "latency_p99" and len(varying) > 1:
        raise InputError("the objective latency_p99 is for one varying size")
    if len(varying) == 2:
        return along_two(prices, seen, varying, limits)
    return along_one(prices, seen, varying, limits, objective)


def _advice(seen: Traffic, varying: Sequence[str]) -> str:
    """Return how fewer sizes can vary: sizes that are equal in every call need one name."""
    columns: dict[tuple[int, ...], list[str]] = {}
    for name in varying:
        column = seen.symbols.index(name)
        columns.setdefault(tuple(sizes[column] for sizes in seen.counts), []).append(name)
    equal = [" = ".join(group) for group in columns.values() if len(group) > 1]
    if not equal:
        return (
            "Declare the others as static (dynamic={argument: {dimension: size}}), or plan for traffic where they stay."
        )
    return (
        f"{' and '.join(equal)} in every call: give dimensions that are always equal one name, such as "
        "dynamic={'x': {0: 'batch'}, 'mask': {0: 'batch'}}, then only "
        f"{len(columns)} {'size varies' if len(columns) == 1 else 'sizes vary'}."
    )


def best_of_so_many(best: Best, count: int, prices: Prices, seen: Traffic, limits: Limits) -> tuple[Sizes, ...]:
    """Return the caps of the best plan with at most ``count`` graphs; along two sizes, improved by local search."""
    caps = best[1][min(count, len(best[1])) - 1]
    varying = [name for name in prices.symbols if name in seen.varying]
    return improved(prices, seen, varying, limits, caps) if len(varying) == 2 else caps


def least_of_so_many(best: Best, count: int, prices: Prices, seen: Traffic, limits: Limits) -> float:
    """Return a lower bound on the cost of all plans with at most ``count`` graphs; along one size it is reached."""
    varying = [name for name in prices.symbols if name in seen.varying]
    if len(varying) < 2:
        return best[0][min(count, len(best[0])) - 1]
    return least(prices, seen, varying, limits, count)
