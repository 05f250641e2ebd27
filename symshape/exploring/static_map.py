"""The region map without scripts: an SVG of who serves which sizes, for the two that vary most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

import attrs

from guards.terms.tape import run_tape
from symshape.exploring.records import Space

COLOURS = ("#4477aa", "#e29534", "#3f9c6b", "#c75b7a", "#8867b8", "#7fb8dd", "#a8a432", "#8c6d5a")
"""Of entries by position, as on the page."""
_CELLS = (64, 36)
_SCALE = 7  # pixels of a cell
_MARGIN = 46


@attrs.frozen
class _Axis:
    """A slot along an edge: those that turn with it, and the values that are shown."""

    slots: tuple[int, ...]
    label: str
    values: Sequence[int]


def map_svg(space: Space) -> str:
    """The map as SVG with a legend below it; empty if fewer than two sizes vary.

    Other sizes stand where they start.  Where a range has more values than cells, some are left out evenly.
    """
    axes = list(_axes(space))
    if len(axes) < 2:
        return ""
    across, up = axes[:2]
    rows = [[_cell(space, across, x, up, y) for x in across.values] for y in up.values]
    seen = sorted({cell[0] for row in rows for cell in row if cell is not None})
    width, height = _SCALE * len(across.values), _SCALE * len(up.values)
    body = "".join(_row(row, height - _SCALE * (index + 1)) for index, row in enumerate(rows))
    frame = f'<rect x="{_MARGIN}" width="{width}" height="{height}" fill="none" stroke="#888"/>'
    texts = _text(_MARGIN, height + 14, str(across.values[0]), "start")
    texts += _text(_MARGIN + width, height + 14, str(across.values[-1]), "end")
    texts += _text(_MARGIN + width // 2, height + 14, across.label, "middle")
    texts += _text(_MARGIN - 5, height, str(up.values[0]), "end") + _text(_MARGIN - 5, 11, str(up.values[-1]), "end")
    shape = f'width="{width + _MARGIN + 4}" height="{height + 20}" role="img" aria-label="region map"'
    drawn = f'<svg xmlns="http://www.w3.org/2000/svg" {shape}>{body}{frame}{texts}</svg>'
    names = ", ".join(_named(space, index) for index in seen[:12]) or "nothing is served here"
    steps = [axis.values[1] - axis.values[0] for axis in (across, up)]
    apart = (
        ""
        if steps == [1, 1]
        else f"; cells are {steps[0]} apart, upwards {steps[1]}, and pale where it is otherwise in between"
    )
    caption = f"{escape(up.label)} upwards; {names}; blank: none{apart}"
    return f"<figure>{drawn}<figcaption>{caption}</figcaption></figure>"


def _axes(space: Space) -> Iterator[_Axis]:
    done: set[int] = set()
    for index, slot in enumerate(space.slots):
        if index in done or slot.fixed or slot.derived is not None:
            continue
        group = tuple(next((link for link in space.links if index in link), [index]))
        done.update(group)
        low = max(-slot.top if slot.low is None else slot.low, -slot.top)
        most = _CELLS[0] if not done - set(group) else _CELLS[1]
        step = 1  # powers of two, and multiples of them: what programs ask of sizes is seen best so
        while (slot.top - low) // step >= most:
            step *= 2
        label = " = ".join(space.slots[each].source for each in group)
        yield _Axis(group, label, range(-(-low // step) * step, slot.top + 1, step))


def _cell(space: Space, across: _Axis, x: int, up: _Axis, y: int) -> tuple[int, bool] | None:
    """Who serves a pair, and whether a pair in between (if there is one) is served otherwise; None for nobody."""
    found = _serving(space, across, x, up, y)
    if found is None:
        return None
    between = _serving(space, across, x + _half(across), up, y + _half(up))
    return found, between != found


def _half(axis: _Axis) -> int:
    step = axis.values[1] - axis.values[0]
    return step // 2 | 1 if step > 1 else 0


def _serving(space: Space, across: _Axis, x: int, up: _Axis, y: int) -> int | None:
    values = [slot.start for slot in space.slots]
    for axis, value in ((across, x), (up, y)):
        for slot in axis.slots:
            values[slot] = value
    registers = run_tape(space.tape.steps, values)
    derived = [(at, slot.derived) for at, slot in enumerate(space.slots) if slot.derived is not None]
    if derived:
        for at, register in derived:
            found = registers[register]
            values[at] = values[at] if found is None else found
        registers = run_tape(space.tape.steps, values)
    for index, entry in enumerate(space.entries):
        if all(registers[guard.register] is True for guard in entry.guards):
            return index
    return None


def _row(row: Sequence[tuple[int, bool] | None], top: int) -> str:
    """The cells of a row, neighbours of one colour together."""
    parts = []
    left = _MARGIN
    for cell, run in groupby(row):
        width = _SCALE * len(list(run))
        if cell is not None:
            size = f'x="{left}" y="{top}" width="{width}" height="{_SCALE}"'
            pale = ' fill-opacity="0.4"' if cell[1] else ""
            parts.append(f'<rect {size} fill="{COLOURS[cell[0] % len(COLOURS)]}"{pale}/>')
        left += width
    return "".join(parts)


def _text(x: int, y: int, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" font-size="11" fill="#888" text-anchor="{anchor}">{escape(text)}</text>'


def _named(space: Space, index: int) -> str:
    colour = COLOURS[index % len(COLOURS)]
    return f'<span style="color:{colour}">&#9632;</span> {escape(space.entries[index].label)}'
