"""Tables in a terminal: texts are shown as they are, rows beyond the limit are counted."""

from __future__ import annotations

import io

from rich.console import Console

from symshape.exploring.tables import Table
from symshape.exploring.terminal import terminal_table


def drawn(table: Table, limit: int | None = None) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(terminal_table(table, limit=limit))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_brackets_of_source_lines_are_not_markup() -> None:
    text = drawn(
        Table("[bold]t[/]", ("line",), (("return mask[batch, kv] [/red] [link=x]y",),), code=frozenset({"line"}))
    )
    assert "return mask[batch, kv] [/red] [link=x]y" in text
    assert "[bold]t[/]" in text


def test_rows_beyond_the_limit_are_counted() -> None:
    text = drawn(Table("t", ("a wide column",), tuple((str(n),) for n in range(100, 110))), limit=3)
    assert "102" in text
    assert "103" not in text
    assert "and 7 more" in text
