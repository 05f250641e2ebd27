"""The map without scripts shows what serves, cell by cell."""

from __future__ import annotations

import re

import pytest
import torch

import symshape
from guards import GuardSet
from symshape.exploring.report_html import COLOURS, map_svg


def _cells(svg: str, columns: int) -> dict[tuple[int, int], str]:
    """The colour of each cell by column and row from below, read from the picture."""
    frame = re.search(r'<rect x="(\d+)" width="(\d+)" height="(\d+)" fill="none"', svg)
    assert frame is not None
    left, across, height = map(int, frame.groups())
    found = {}
    rows = re.findall(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)" fill="(#\w+)"', svg)
    wide = across // columns
    for x, y, width, high, colour in rows:
        for column in range((int(x) - left) // wide, (int(x) - left + int(width)) // wide):
            found[column, (height - int(y)) // int(high) - 1] = colour
    return found


def test_a_guard_set() -> None:
    guards = GuardSet.read("n % 3 == 1", "n + m > 12", "m // (n - 4) <= 2")
    (space,) = symshape.explore(guards).report.spaces
    cells = _cells(map_svg(space), space.slots[0].top + 1)
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
    cells = _cells(map_svg(space), space.slots[0].top + 1)
    assert cells[5, 4] == COLOURS[0]
    assert cells[4, 4] == COLOURS[1]
    assert map_svg(space) in compiled._repr_html_()


@pytest.mark.parametrize("text", ["n > 2", "n == 8"])
def test_one_size_alone_has_no_map(text: str) -> None:
    (space,) = symshape.explore(GuardSet.read(text)).report.spaces
    assert map_svg(space) == ""


def _texts(svg: str) -> dict[str, float]:
    """The texts of a map and how far down each is."""
    return {text: float(y) for y, text in re.findall(r'<text x="\d+" y="(\d+)"[^>]*>([^<]*)<', svg)}


def test_sizes_have_the_names_that_the_user_gave() -> None:
    named = {
        "x": {0: symshape.Dim("batch"), 1: symshape.Dim("length")},
        "y": {0: symshape.Dim("batch")},
    }
    compiled = symshape.compile(lambda x, y: x.sum(1) + y, dynamic=named)
    for batch, length in ((2, 3), (4, 9), (7, 5)):
        compiled(torch.ones(batch, length), torch.ones(batch))
    report = symshape.explore(compiled).report
    (space,) = report.spaces
    assert [space.slots[axis].label for axis in space.axes] == ["batch", "length"]
    assert {"batch", "length"} < _texts(map_svg(space)).keys()
    assert [guard.words for guard in space.entries[0].guards if guard.kind == "layout"][
        -1
    ] == "batch == y.size(0)"
    assert "batch=2, length=3" in [moment.sizes for moment in report.moments]


def test_a_map_shows_two_sizes_that_differ() -> None:
    """A mask has the sizes of the tokens in each call, though no guard says so."""
    compiled = symshape.compile(lambda ids, mask: (ids * 2, mask + 1), dynamic=True)
    for batch, length in ((2, 3), (4, 9), (7, 5), (7, 6)):
        compiled(torch.ones(length, batch), torch.ones(length, batch))
    (space,) = symshape.explore(compiled).report.spaces
    assert [space.slots[axis].source for axis in space.axes] == ["ids.size(0)", "ids.size(1)"]
    assert not space.links


def test_names_of_axes_stand_below_the_numbers() -> None:
    guards = GuardSet.read("batch * length <= 4096", "batch >= 1", "length >= 1")
    (space,) = symshape.explore(guards).report.spaces
    texts = _texts(map_svg(space))
    bottom = [y for text, y in texts.items() if text.isdigit()]
    assert texts["batch"] >= max(bottom) + 15
