"""A region along two of its symbols, cell by cell, against trying the values of the others."""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards import GuardsError, GuardSet, parse
from guards.regions.raster import Grid, grid
from tests.guards.making import random_set


class TestRegion:
    def test_cells_are_where_the_rest_can_hold(self) -> None:
        guards = GuardSet.read(
            "s0 + s1 >= s2", "s2 * s2 == 9", "s0 % 2 == 0", ranges={"s2": (1, None)}
        )
        found = guards.region("s0", "s1", range(5), range(4))
        for y, row in zip(found.rows, found.cells, strict=True):
            for x, cell in zip(found.columns, row, strict=True):
                assert cell is (x % 2 == 0 and x + y >= 3), (x, y)

    def test_fixed_symbols(self) -> None:
        found = GuardSet.read("s0 + s1 > s2").region("s0", "s1", range(3), range(2), at={"s2": 1})
        assert found.cells == ((False, False, True), (False, True, True))

    def test_unbounded_ranges_are_cut(self) -> None:
        found = GuardSet.read("s0 > 10", "s1 > s0").region("s0", "s1")
        assert found.columns == tuple(range(11, 43))
        assert found.rows[0] == 12
        assert found.cells[0][0] is True
        assert found.cells[0][1] is False

    def test_empty(self) -> None:
        found = GuardSet.read("s0 > 2", "s0 < 2", ranges={"s0": (None, None), "s1": (0, 1)}).region(
            "s0", "s1", range(2), range(2)
        )
        assert found.cells == ((False, False), (False, False))

    def test_wrong_use(self) -> None:
        guards = GuardSet.read("s0 > 2")
        with pytest.raises(GuardsError, match="two symbols"):
            guards.region("s0", "s0")
        with pytest.raises(GuardsError, match="too many"):
            guards.region("s0", "s1", range(2000), range(2000))

    def test_random_sets(self) -> None:
        rng = random.Random(11)
        names = ("s0", "s1", "s2")
        seen = {True: 0, False: 0}
        for _ in range(40):
            guards = random_set(rng, names, 3).intersect(GuardSet((), dict.fromkeys(names, (0, 4))))
            found = guards.region("s0", "s1", range(-1, 6), range(-1, 6))
            for (y, row), (i, x) in product(
                zip(found.rows, found.cells, strict=True), enumerate(found.columns)
            ):
                wanted = any(guards.holds({"s0": x, "s1": y, "s2": z}) for z in range(5))
                assert row[i] is wanted, (guards, x, y)
                seen[wanted] += 1
        assert min(seen.values()) > 100

    def test_where_elimination_is_not_exact_cells_are_searched(self) -> None:
        found = grid(
            [parse("s0 * s1 == s2 * s2")], {"s2": (1, None)}, "s0", "s1", range(5), range(5)
        )
        squares = {1, 4, 9, 16}
        assert found.cells == tuple(tuple(x * y in squares for x in range(5)) for y in range(5))

    def test_contradictions_leave_no_cell(self) -> None:
        found = grid([parse("s0 > s1"), parse("s0 < s1")], {}, "s0", "s1", range(3), range(3))
        assert found.cells == ((False,) * 3,) * 3


def test_drawn() -> None:
    drawn = str(Grid("a", "b", (8, 9), (9, 10), ((True, False), (None, True))))
    assert drawn == "10 ?#\n 9 #.\nb upwards, a from left to right: 8..9"
