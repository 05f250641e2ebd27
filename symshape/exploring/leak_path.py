"""The path from the padding to an output as an SVG: the ops in order, and where padding leaves its
place.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import attrs

__all__ = ["path_svg"]

_WIDTH = 680  # pixels
_ROW, _BOX = 40, 28  # pixels from one box to the next, and of a box
_MOST = 14  # rows of ops; more are counted in a row of their own
_LONGEST = 84  # characters of a row
_AT_PADDING, _SPREAD = "#b8860b", "#b3261e"
"""The colours of ops before and after padding spreads to valid positions."""


@attrs.frozen
class _Row:
    """One row: its text, the whole text for the pointer, and whether padding has spread by then."""

    text: str
    whole: str
    spread: bool
    here: bool = False


def path_svg(output: str, steps: Sequence[tuple[str, str]], at: int, reason: str) -> str:
    """Return the path to an output as SVG.

    The box of the op at which padding spreads is filled.

    Args:
        output: the name of the output.
        steps: for each op its name, and its name with the user's line.
        at: the position of the op at which padding spreads.
        reason: why padding spreads there.
    """
    rows = _rows(output, steps, at, reason)
    height = _ROW * len(rows) + 8
    drawn = "".join(
        _drawn(row, 4 + _ROW * place, last=row is rows[-1]) for place, row in enumerate(rows)
    )
    shape = (
        f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        'style="max-width:100%;height:auto"'
    )
    label = escape(f"path from the padding to {output}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {shape} role="img" '
        f'aria-label="{label}">{drawn}</svg>'
    )


def _rows(output: str, steps: Sequence[tuple[str, str]], at: int, reason: str) -> Sequence[_Row]:
    rows = [_Row("padding", "the content of the padding", spread=False)]
    kept = _kept(len(steps), at)
    why = f": {reason}" if reason else ""
    for place, (name, whole) in enumerate(steps):
        if place not in kept:
            if place - 1 in kept:
                hidden = (
                    next(
                        end
                        for end in range(place, len(steps) + 1)
                        if end in kept or end == len(steps)
                    )
                    - place
                )
                names = ", ".join(each for each, _ in steps[place : place + hidden])
                rows.append(_Row(f"… {hidden} more", names, spread=place > at))
            continue
        more = why if place == at else ""
        rows.append(_Row(f"{name}{more}", f"{whole}{more}", spread=place >= at, here=place == at))
    return [*rows, _Row(output, f"the output {output}", spread=True)]


def _kept(count: int, at: int) -> set[int]:
    """Return the steps that have a row: all, or the first, the last and those around the one that
    spreads.
    """
    if count <= _MOST:
        return set(range(count))
    around = range(max(0, at - 2), min(count, at + 3))
    return {*range(3), *around, *range(count - 3, count)}


def _drawn(row: _Row, top: int, *, last: bool) -> str:
    colour = _SPREAD if row.spread else _AT_PADDING
    fill, ink = (colour, "#fff") if row.here else ("none", "currentColor")
    text = row.text if len(row.text) <= _LONGEST else f"{row.text[: _LONGEST - 1]}…"
    box = (
        f'<rect x="1" y="{top}" width="{_WIDTH - 2}" height="{_BOX}" rx="5" fill="{fill}" '
        f'stroke="{colour}"/>'
    )
    words = (
        f'<text x="10" y="{top + 18}" font-size="12" font-family="monospace" '
        f'fill="{ink}">{escape(text)}</text>'
        f"<title>{escape(row.whole)}</title>"
    )
    line = (
        ""
        if last
        else f'<path d="M20 {top + _BOX} v{_ROW - _BOX}" stroke="{colour}" stroke-width="2"/>'
    )
    return f"<g>{box}{words}{line}</g>"
