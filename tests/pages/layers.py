"""The picture of *How it works*: the three packages, and the way of a trace and of a call through
them.

The folders of a package come from the test that enforces their order.
"""

from __future__ import annotations

import textwrap

from tests.discovery import REPOSITORY
from tests.test_architecture import FLOORS

_STYLE = """
  svg { font: 15px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
  .card { fill: #ffffff; stroke: #d0d7de; } .box { fill: #eef3f8; stroke: #8b98a5; }
  .step { fill: #ffffff; stroke: #0a5bd3; }
  .text { fill: #1f2328; } .soft { fill: #59636e; font-size: 13px; }
  .arrow { stroke: #0a5bd3; stroke-width: 2; fill: none; }
  .head { fill: #0a5bd3; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d; } .box { fill: #1b222b; stroke: #59636e; }
    .step { fill: #0d1117; stroke: #58a6ff; }
    .text { fill: #f0f6fc; } .soft { fill: #9198a1; }
    .arrow { stroke: #58a6ff; } .head { fill: #58a6ff; }
  }
"""
_WAYS = (
    (
        "a call",
        (
            "exact key of the call",
            "one tree of all programs",
            "state that was read",
            "the entry's runner",
        ),
    ),
    (
        "a trace, where no program fits",
        (
            "the function on symbols",
            "a rule for each operator",
            "guards with lines",
            "a new program",
        ),
    ),
)
_PACKAGES = (
    ("symshape", "tracing, the cache, runners, stores, displays"),
    ("meta_fns", "a shape, a cost and a padding rule for each ATen operator; needs torch"),
    ("guards", "integer terms, deciders, guard sets, dispatch trees; needs no torch"),
)
_WIDTH = 860
# height of a package without its folders, of a line of them; letters of a line
_BOX, _LINE, _LETTERS = (52, 20, 100)
_STEP, _GAP = 182, 24  # width of a step, space between two


def picture() -> str:
    """Return the SVG: two ways, a row each, above the packages that they use."""
    rows = [_row(words, steps, 24 + 104 * number) for number, (words, steps) in enumerate(_WAYS)]
    top = 24 + 104 * len(_WAYS) + 8
    boxes: list[str] = []
    for name, words in _PACKAGES:
        lines = textwrap.wrap(" \N{RIGHTWARDS ARROW} ".join(folders(name)), _LETTERS)
        boxes.append(_box(name, words, lines, top))
        top += _BOX + _LINE * len(lines) + 10
    height = top + 14
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
            'aria-label="The way of a call and of a trace, above the three packages">',
            f"<style>{_STYLE}</style>",
            (
                f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" '
                'rx="8"/>'
            ),
            *rows,
            *boxes,
            "</svg>\n",
        ]
    )


def _box(name: str, words: str, lines: list[str], top: int) -> str:
    """Return a package: its name, its subject, and its folders from the lowest to the highest."""
    order = [
        f'<text class="soft" x="44" y="{top + 54 + _LINE * number}">{line}</text>'
        for number, line in enumerate(lines)
    ]
    return (
        f'<rect class="box" x="24" y="{top}" width="{_WIDTH - 48}" '
        f'height="{_BOX + _LINE * len(lines)}" rx="6"/>'
        f'<text class="text" x="44" y="{top + 30}" font-weight="600">{name}</text>'
        f'<text class="soft" x="160" y="{top + 30}">{words}</text>' + "".join(order)
    )


def folders(package: str) -> list[str]:
    """Return the folders of a package that imports may go between, from the lowest to the
    highest.
    """
    tops = dict.fromkeys(floor.partition(".")[0] for floor in FLOORS[package])
    return [name for name in tops if (REPOSITORY / package / name / "__init__.py").is_file()]


def _row(words: str, steps: tuple[str, ...], top: int) -> str:
    parts = [f'<text class="text" x="24" y="{top + 14}" font-weight="600">{words}</text>']
    for number, step in enumerate(steps):
        left = 24 + number * (_STEP + _GAP)
        parts.append(
            f'<rect class="step" x="{left}" y="{top + 28}" width="{_STEP}" height="44" rx="6"/>'
        )
        parts.append(
            f'<text class="soft" x="{left + _STEP / 2}" y="{top + 55}" '
            f'text-anchor="middle">{step}</text>'
        )
        if number:
            tip, y = left - 3, top + 50
            parts.append(f'<path class="arrow" d="M{left - _GAP + 2} {y} H{tip - 6}"/>')
            parts.append(f'<path class="head" d="M{tip} {y} l-8 -5 v10 z"/>')
    return "\n".join(parts)
