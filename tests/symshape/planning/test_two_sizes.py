"""Plans on a grid: the local search never makes them dearer, and the bound is never above the best
of all plans.
"""

from __future__ import annotations

import itertools
import random

from symshape.planning.two_sizes import least_cost, moved

Cell = tuple[int, int]


def cost(counts: dict[Cell, int], prices: dict[Cell, int], caps: list[Cell]) -> float:
    fitting = {
        cell: min(
            (prices[c] for c in caps if c[0] >= cell[0] and c[1] >= cell[1]), default=float("inf")
        )
        for cell in counts
    }
    return sum(fitting[cell] * count for cell, count in counts.items())


def test_against_all_sets_of_caps() -> None:
    rng = random.Random(11)
    reached = tried = 0
    for _ in range(40):
        rows, columns = rng.randint(2, 3), rng.randint(2, 4)
        grid = list(itertools.product(range(rows), range(columns)))
        counts = {cell: rng.randint(1, 5) for cell in grid if rng.random() < 0.8}
        counts[rows - 1, columns - 1] = 1
        heights, widths = (
            sorted(rng.sample(range(1, 9), rows)),
            sorted(rng.sample(range(1, 30), columns)),
        )
        prices = {(i, j): heights[i] * widths[j] for i, j in grid}
        k = rng.randint(1, 3)
        start = [(rows - 1, columns - 1), *rng.sample(grid[:-1], k)]
        found = moved(counts, prices, start)
        best = min(
            cost(counts, prices, [*caps, grid[-1]]) for caps in itertools.combinations(grid[:-1], k)
        )
        assert len(found) == len(set(found)) <= len(start)
        assert best <= cost(counts, prices, found) <= cost(counts, prices, start)
        tried += 1
        reached += cost(counts, prices, found) == best
    assert reached >= 0.8 * tried


def test_a_cap_is_never_put_where_none_can_be() -> None:
    counts = {(0, 0): 5, (1, 1): 1}
    prices = {(0, 1): 3, (1, 1): 10}  # nothing at (0, 0)
    assert sorted(moved(counts, prices, [(0, 1), (1, 1)])) == [(0, 1), (1, 1)]


def test_the_bound_is_never_above_the_best_of_all_plans() -> None:
    rng = random.Random(5)
    shares = []
    for number in range(60):
        rows, columns = rng.randint(1, 3), rng.randint(1, 4)
        grid = list(itertools.product(range(rows), range(columns)))
        counts = {cell: rng.randint(1, 5) for cell in grid if rng.random() < 0.8}
        counts[rng.randrange(rows), rng.randrange(columns)] = 1
        rising = number % 2
        heights, widths = (
            sorted(rng.sample(range(1, 9), rows)),
            sorted(rng.sample(range(1, 30), columns)),
        )
        prices = {(i, j): heights[i] * widths[j] if rising else rng.randint(0, 50) for i, j in grid}
        for k in range(1, 5):
            best = min(
                cost
                for size in range(1, k + 1)
                for caps in itertools.combinations(grid, min(size, len(grid)))
                if (cost := _least_padded(counts, prices, caps)) is not None
            )
            bound = least_cost(counts, rows, columns, lambda i, j, prices=prices: prices[i, j], k)
            assert bound <= best
            shares.append(bound / best if best else 1.0)
    assert sum(shares) / len(shares) > 0.9


def _least_padded(
    counts: dict[tuple[int, int], int],
    prices: dict[tuple[int, int], int],
    caps: tuple[tuple[int, int], ...],
) -> int | None:
    total = 0
    for (row, column), count in counts.items():
        held = [prices[cap] for cap in caps if cap[0] >= row and cap[1] >= column]
        if not held:
            return None
        total += count * min(held)
    return total
