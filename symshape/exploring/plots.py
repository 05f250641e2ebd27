"""Plots of traffic and of a plan for it; they need matplotlib (the extra ``notebook``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from symshape.errors import InputError


def plot_plan(
    symbols: Sequence[str],
    counts: Mapping[tuple[int, ...], int],
    caps: Sequence[tuple[int, ...]],
    curve: Sequence[float],
    exact: float,
    axes: Any = None,
) -> Any:
    """Draw two plots beside each other: calls by size with the caps, and padding by the number of
    graphs.

    Args:
        symbols: the one or two sizes that are drawn.
        counts: how many calls came of each.
        caps: the caps along them.
        curve: what all calls cost with at most 1, 2, … graphs.
        exact: what they cost if nothing is padded.
        axes: two axes to draw on; new ones if None.

    Raises:
        InputError: matplotlib is not installed.
    """
    if axes is None:
        try:
            import matplotlib.pyplot as plt
        except ModuleNotFoundError:
            raise InputError("pictures need matplotlib: pip install 'symshape[notebook]'") from None
        _, axes = plt.subplots(1, 2, figsize=(10, 3.5))
    left, right = axes
    if len(symbols) == 1:
        sizes = [point[0] for point in counts]
        left.hist(sizes, bins=60, weights=list(counts.values()), color="0.75")
        for (cap,) in caps:
            left.axvline(cap, linewidth=1)
        left.set_ylabel("calls")
    else:
        spread = [8 + 80 * count / max(counts.values()) for count in counts.values()]
        left.scatter(
            [point[0] for point in counts], [point[1] for point in counts], spread, color="0.75"
        )
        left.plot([cap[0] for cap in caps], [cap[1] for cap in caps], "_", markersize=12)
        left.set_ylabel(symbols[1])
    left.set_xlabel(symbols[0])
    left.set_title(f"calls and {len(caps)} caps")
    wasted = [100 * (cost / exact - 1) if exact else 0.0 for cost in curve]
    right.plot(range(1, len(wasted) + 1), wasted)
    right.set_xlabel("graphs")
    right.set_ylabel("padding, % of the exact cost")
    right.set_yscale("log" if wasted and min(wasted) > 0 else "linear")
    right.set_title("what graphs are worth")
    return axes
