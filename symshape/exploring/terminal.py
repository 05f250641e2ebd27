"""Tables in a terminal."""

from __future__ import annotations

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from symshape.exploring.tables import Table


def terminal_table(table: Table, *, limit: int | None = None) -> RichTable:
    """The table for a rich console; rows beyond ``limit`` are only counted.  Markup in texts is not read."""
    shown = table.rows if limit is None else table.rows[:limit]
    left = len(table.rows) - len(shown)
    caption = f"and {left} more" if left else None
    drawn = RichTable(title=Text(table.title, "bold"), caption=caption, box=box.SIMPLE_HEAD, title_justify="left")
    for column in table.columns:
        style = "cyan" if column in table.code else ""
        drawn.add_column(
            column,
            style=style,
            justify="right" if column in table.numbers else "left",
            overflow="fold",
            no_wrap=column in table.numbers and len(column) < 20,
        )
    for row in shown:
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn
