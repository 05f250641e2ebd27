"""The bound of plans on a grid: never above the best of all plans, and near it."""

from __future__ import annotations

import itertools
import random

from symshape.planning.bounds import least_cost


def test_never_above_the_best_of_all_plans() -> None:
    rng = random.Random(5)
    shares = []
    for number in range(60):
        rows, columns = rng.randint(1, 3), rng.randint(1, 4)
        grid = list(itertools.product(range(rows), range(columns)))
        counts = {cell: rng.randint(1, 5) for cell in grid if rng.random() < 0.8}
        counts[rng.randrange(rows), rng.randrange(columns)] = 1
        rising = number % 2
        heights, widths = sorted(rng.sample(range(1, 9), rows)), sorted(rng.sample(range(1, 30), columns))
        prices = {(i, j): heights[i] * widths[j] if rising else rng.randint(0, 50) for i, j in grid}
        for k in range(1, 5):
            best = min(
                cost
                for size in range(1, k + 1)
                for caps in itertools.combinations(grid, min(size, len(grid)))
                if (cost := _cost(counts, prices, caps)) is not None
            )
            bound = least_cost(counts, rows, columns, lambda i, j, prices=prices: prices[i, j], k)
            assert bound <= best
            shares.append(bound / best if best else 1.0)
    assert sum(shares) / len(shares) > 0.9


def _cost(
    counts: dict[tuple[int, int], int], prices: dict[tuple[int, int], int], caps: tuple[tuple[int, int], ...]
) -> int | None:
    total = 0
    for (row, column), count in counts.items():
        held = [prices[cap] for cap in caps if cap[0] >= row and cap[1] >= column]
        if not held:
            return None
        total += count * min(held)
    return total
