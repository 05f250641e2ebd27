"""The map without scripts shows what serves, cell by cell."""

from __future__ import annotations

import re

import pytest
import torch

import symshape
from guards import GuardSet
from symshape.exploring.static_map import COLOURS, map_svg


def _cells(svg: str) -> dict[tuple[int, int], str]:
    """The colour of each cell by column and row from below, read from the picture."""
    height = int(re.search(r'<rect x="46" width="\d+" height="(\d+)" fill="none"', svg)[1])  # type: ignore[index]
    found = {}
    for x, y, width, colour in re.findall(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="7" fill="(#\w+)"', svg):
        for column in range((int(x) - 46) // 7, (int(x) - 46 + int(width)) // 7):
            found[column, (height - int(y)) // 7 - 1] = colour
    return found


def test_a_guard_set() -> None:
    guards = GuardSet.read("n % 3 == 1", "n + m > 12", "m // (n - 4) <= 2")
    (space,) = symshape.explore(guards).report.spaces
    cells = _cells(map_svg(space))
    top = space.slots[0].top, space.slots[1].top
    assert max(top) <= 39, "each cell is one pair"
    assert [slot.name for slot in space.slots] == ["m", "n"]
    for m in range(top[0] + 1):
        for n in range(top[1] + 1):
            assert ((m, n) in cells) is guards.holds({"n": n, "m": m}), (m, n)


def test_a_cache() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y]) * 2 if x.size(0) > y.size(0) else x.sum() + y

    compiled = symshape.compile(f, dynamic=True)
    for a, b in ((3, 2), (2, 3)):
        compiled(torch.ones(a), torch.ones(b))
    (space,) = symshape.explore(compiled).report.spaces
    cells = _cells(map_svg(space))
    assert cells[5, 4] == COLOURS[0]
    assert cells[4, 4] == COLOURS[1]
    assert map_svg(space) in compiled._repr_html_()


@pytest.mark.parametrize("text", ["n > 2", "n == 8"])
def test_one_size_alone_has_no_map(text: str) -> None:
    (space,) = symshape.explore(GuardSet.read(text)).report.spaces
    assert map_svg(space) == ""
