"""Caps chosen by dynamic programming, against trying all of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from symshape.planning.dynamic_programming import choose_bands, choose_caps


def padded(counts: Sequence[int], prices: Sequence[int], caps: Sequence[int]) -> int:
    return sum(
        count * prices[min(cap for cap in caps if cap >= i)] for i, count in enumerate(counts)
    )


@pytest.mark.parametrize("rising", [True, False])
def test_one_symbol(rising: bool) -> None:
    rng = random.Random(7 + rising)
    for _ in range(300):
        size = rng.randint(1, 7)
        counts = [*(rng.randint(0, 5) for _ in range(size - 1)), rng.randint(1, 5)]
        prices = [rng.randint(0, 50) for _ in range(size)]
        prices = sorted(prices) if rising else prices
        found = choose_caps(counts, prices, 4)
        for k in range(1, len(found.costs)):
            all_caps = (caps for caps in itertools.combinations(range(size), k) if size - 1 in caps)
            assert found.costs[k] == min(padded(counts, prices, caps) for caps in all_caps)
            assert found.costs[k] == padded(counts, prices, found.caps(k))
            assert len(set(found.caps(k))) == k


def banded_plans(
    rows: int, columns: int, used: dict[int, list[int]]
) -> list[list[tuple[int, int, list[int]]]]:
    """Every way to cut the rows into bands, each with some of the columns that are used in it."""
    plans = []
    for cuts in itertools.product([False, True], repeat=rows - 1):
        ends = [*(i for i, cut in enumerate(cuts) if cut), rows - 1]
        bands, start = [], 0
        for end in ends:
            there = sorted(
                {column for row in range(start, end + 1) for column in used.get(row, [])}
            )
            bands.append((start, end, there))
            start = end + 1
        plans.append(bands)
    return plans


def test_two_symbols() -> None:
    rng = random.Random(3)
    for _ in range(60):
        rows, columns = rng.randint(1, 3), rng.randint(1, 4)
        counts = {
            (i, j): rng.randint(0, 4)
            for i in range(rows)
            for j in range(columns)
            if rng.random() < 0.7
        }
        counts[rows - 1, columns - 1] = 2
        heights, widths = (
            sorted(rng.sample(range(1, 9), rows)),
            sorted(rng.sample(range(1, 30), columns)),
        )
        used: dict[int, list[int]] = {}
        for (row, column), count in counts.items():
            if count:
                used.setdefault(row, []).append(column)
        best: dict[int, int] = {}
        for bands in banded_plans(rows, columns, used):
            for chosen in itertools.product(*map(_subsets, (there for _, _, there in bands))):
                k = sum(map(len, chosen))
                cost = 0
                for (start, end, _), caps in zip(bands, chosen, strict=True):
                    for row in range(start, end + 1):
                        for column in used.get(row, []):
                            cap = min((c for c in caps if c >= column), default=None)
                            assert cap is not None
                            cost += counts[row, column] * heights[end] * widths[cap]
                best[k] = min(cost, best.get(k, cost))
        found = choose_bands(
            counts, rows, columns, lambda i, j, h=heights, w=widths: h[i] * w[j], 5
        )
        for k in range(1, 6):
            assert found.costs[k] == best.get(k), (counts, heights, widths, k)


def _subsets(columns: Sequence[int]) -> list[tuple[int, ...]]:
    """Those with the last one; of nothing, nothing."""
    if not columns:
        return [()]
    return [
        (*chosen, columns[-1])
        for k in range(len(columns))
        for chosen in itertools.combinations(columns[:-1], k)
    ]
