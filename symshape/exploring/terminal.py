"""Tables in a terminal: in columns if every word fits the width, else one row below the other."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import attrs
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from guards.text.escaping import printable
from symshape.exploring.tables import Table

_TALLEST = 6
"""The largest number of lines of a cell; a table with a taller one is shown row by row."""


class TerminalTable:
    """A table that a rich console draws.  Markup in texts is not read.

    Args:
        table: what is drawn.
        limit: rows beyond so many are only counted.
    """

    def __init__(self, table: Table, limit: int | None = None) -> None:
        rows = table.rows if limit is None else table.rows[:limit]
        self.rows = tuple(tuple(map(_escaped, row)) for row in rows)
        self.table = attrs.evolve(
            table,
            title=_escaped(table.title),
            columns=tuple(map(_escaped, table.columns)),
            rows=self.rows,
            code=frozenset(map(_escaped, table.code)),
            numbers=frozenset(map(_escaped, table.numbers)),
        )
        left = len(table.rows) - len(rows)
        self.caption = f"and {left} more" if left else ""

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw columns if that breaks no word, else rows one below the other."""
        widths = self._widths(options.max_width)
        if widths is not None:
            yield self._in_columns(widths)
        else:
            yield from self._row_by_row(options.max_width)

    def _widths(self, width: int) -> list[int] | None:
        """Return the width of each column, in cells; None where a word or a number would have to be
        broken.
        """
        columns = list(zip(self.table.columns, *self.rows, strict=True))
        least = [self._least(name, cells) for name, *cells in columns]
        most = [
            max(cell_len(line) for text in column for line in text.splitlines() or [""])
            for column in columns
        ]
        # SIMPLE_HEAD takes 3 cells a column and one more
        left = width - (3 * len(columns) + 1) - sum(least)
        if left < 0:
            return None
        found = list(least)
        for _ in range(left):  # the one whose text is folded most
            neediest = max(range(len(found)), key=lambda i: (most[i] - found[i]) / max(1, found[i]))
            found[neediest] += found[neediest] < most[neediest]
        heights = [
            _height(text, size)
            for column, size in zip(columns, found, strict=True)
            for text in column
        ]
        return None if max(heights, default=0) > _TALLEST else found

    def _least(self, name: str, cells: Sequence[str]) -> int:
        """Return the least width of a column: its longest word, or all of a number."""
        unbroken = [
            *name.split(),
            *(cells if name in self.table.numbers else " ".join(cells).split()),
        ]
        return max(map(cell_len, unbroken), default=0)

    def _style(self, column: str) -> str:
        return "cyan" if column in self.table.code else ""

    def _in_columns(self, widths: Sequence[int]) -> RichTable:
        title = Text(self.table.title, "bold")
        drawn = RichTable(
            title=title, caption=self.caption or None, box=box.SIMPLE_HEAD, title_justify="left"
        )
        for column, width in zip(self.table.columns, widths, strict=True):
            drawn.add_column(
                Text(column),
                style=self._style(column),
                justify="right" if column in self.table.numbers else "left",
                width=width,
                overflow="fold",
            )
        for row in self.rows:
            drawn.add_row(*(Text(cell) for cell in row))
        return drawn

    def _row_by_row(self, width: int) -> Iterator[RenderableType]:
        """Yield for each row its first cell, its numbers, and a line for each other cell that is
        not empty.
        """
        yield Text(self.table.title, "bold")
        for row in self.rows:
            cells = list(zip(self.table.columns, row, strict=True))
            yield Text("")
            yield Padding(
                Text(cells[0][1], self._style(cells[0][0]), overflow="fold"), (0, 0, 0, 2)
            )
            numbers = [
                f"{name}: {cell}" for name, cell in cells[1:] if cell and name in self.table.numbers
            ]
            for line in _packed(numbers, width - 4):
                yield Padding(Text(line), (0, 0, 0, 4))
            for name, cell in cells[1:]:
                if cell and name not in self.table.numbers:
                    text = Text(f"{name}: ", overflow="fold")
                    text.append(cell, self._style(name))
                    yield Padding(text, (0, 0, 0, 4))
        yield Text(f"\n{self.caption}\n" if self.caption else "")


def terminal_table(table: Table, *, limit: int | None = None) -> TerminalTable:
    """Return the table for a rich console; rows beyond ``limit`` are only counted. Markup in texts
    is not read.
    """
    return TerminalTable(table, limit)


def terminal_text(text: str, style: str = "") -> Text:
    """Return a text for a rich console. Markup in it is not read, control characters are
    escaped.
    """
    return Text(_escaped(text), style)


def _escaped(text: str) -> str:
    return printable(text, keep="\n")


def _height(text: str, width: int) -> int:
    """Return how many lines a text takes in a column of this width."""
    return sum(
        len(textwrap.wrap(line, max(1, width), break_long_words=False)) or 1
        for line in text.splitlines()
    )


def _packed(parts: Sequence[str], width: int) -> Iterator[str]:
    """Yield lines of as many parts as fit each; no part is broken."""
    line = ""
    for part in parts:
        longer = f"{line}   {part}" if line else part
        if line and cell_len(longer) > width:
            yield line
            longer = part
        line = longer
    if line:
        yield line
