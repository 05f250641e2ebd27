"""A trace as HTML for notebooks.  All text of the user's program is escaped."""

from __future__ import annotations

from html import escape
from typing import Protocol

from guards.sets import html
from symshape.exploring.tables import (
    Table,
    guards_table,
    inputs_table,
    outputs_table,
    symbols_table,
)
from symshape.graph.program import Program
from symshape.graph.text import text


class HasProgram(Protocol):
    """A traced function, such as a :class:`symshape.Traced`."""

    @property
    def program(self) -> Program:
        """The traced program."""


def traced_html(traced: HasProgram) -> str:
    """Return a traced function as HTML: symbols, inputs, guards with their origins, outputs, and
    (folded) ops.
    """
    program = traced.program
    ops = len(program.graph.nodes)
    heading = f"<b>{escape(program.name)}</b>: {ops} ops, {len(program.guards)} guards"
    tables = (
        symbols_table(program),
        inputs_table(program),
        guards_table(program),
        outputs_table(program),
    )
    graph = (
        f"<details><summary>the {ops} "
        f"ops</summary><pre>{escape(text(program.graph))}</pre></details>"
    )
    shown = "".join(table_html(table) for table in tables if table.rows)
    return f"<div><p>{heading}</p>{shown}{graph}</div>"


def table_html(table: Table) -> str:
    """Return one table as HTML."""
    return html.table(table.columns, table.rows, caption=table.title, code=table.code)
