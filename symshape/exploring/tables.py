"""The results of a trace as tables of text: the data behind the notebook displays and the
terminal's tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import Any, Protocol

import attrs

from guards.sets import html
from guards.sets.guard import Guard
from guards.sets.sources import spelled
from guards.terms import arithmetic, boolean, printing
from guards.terms.term import Term
from meta_fns import TensorSpec
from symshape.calls.arguments import flat_with_paths
from symshape.calls.naming import Naming
from symshape.graph.program import Program, Symbol, given_name
from symshape.graph.text import describe_spec, shown_argument, text


@attrs.frozen
class Table:
    """A titled table of texts.

    Attributes:
        title: what it shows.
        columns: their names.
        rows: texts, one for each column.
        code: the names of the columns that hold code or formulas.
        numbers: the names of the columns that hold numbers.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    code: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()


def symbols_table(program: Program) -> Table:
    """Return a table of the symbols: example value, source (or origin), and policy."""
    rows = tuple(
        (
            symbol.name,
            "" if symbol.hint is None else str(symbol.hint),
            whence(symbol),
            symbol.policy.value,
        )
        for symbol in program.symbols.values()
    )
    return Table(
        f"symbols ({len(rows)})",
        ("symbol", "in the example", "read from", "policy"),
        rows,
        code=frozenset({"symbol", "read from"}),
        numbers=frozenset({"in the example"}),
    )


def guards_table(program: Program) -> Table:
    """Return a table of the guards, in symbols and in the caller's words, with the line, the op and
    the rule.
    """
    names = spelled(program.sources)
    rows = tuple(
        (guard.text(), guard.text(names), *origin_cells(guard)) for guard in program.guards
    )
    return Table(
        f"guards ({len(rows)})",
        ("guard", "in your words", "needed at", "line", "asked by"),
        rows,
        code=frozenset({"guard", "in your words", "line"}),
    )


def short_guards_table(program: Program) -> Table:
    """Return a narrow table of the guards, with the origin in one cell."""
    rows = tuple((guard.text(), _origin_lines(guard)) for guard in program.guards)
    return Table(f"guards ({len(rows)})", ("guard", "needed by"), rows, code=frozenset({"guard"}))


def _origin_lines(guard: Guard) -> str:
    place, line, asked = origin_cells(guard)
    return "\n".join(
        part for part in (" ".join(p for p in (place, asked and f"[{asked}]") if p), line) if part
    )


def origin_cells(guard: Guard) -> tuple[str, str, str]:
    """Return a guard's origin as file and line, source text, and the op or rule that asked."""
    return ("", "", "") if guard.origin is None else guard.origin.cells


def inputs_table(program: Program) -> Table:
    """Return a table of the tensor arguments with their sizes as formulas."""
    rows = tuple((each.path, describe_spec(each.value.spec)) for each in program.graph.inputs)
    return Table(
        f"inputs ({len(rows)})",
        ("argument", "tensor"),
        rows,
        code=frozenset({"argument", "tensor"}),
    )


def outputs_table(program: Program) -> Table:
    """Return a table of the outputs with their sizes as formulas, in the caller's words where
    needed.

    A formula that a guard makes equal to a symbol is shown as that symbol.
    """
    known = {guard.term for guard in program.guards}
    symbols = [arithmetic.symbol(name) for name in program.symbols]
    words = {
        name: text
        for name, text in spelled(program.sources).items()
        if not given_name(arithmetic.symbol(name))
    }

    def plain(size: Any) -> Any:
        term = getattr(size, "term", size)  # of a symbolic size
        if not isinstance(term, Term):
            return term
        return next(
            (each for each in symbols if term is each or boolean.eq(term, each) in known), term
        )

    def in_words(size: Any) -> str:
        found = plain(size)
        return printing.text(found, words) if isinstance(found, Term) else str(found)

    rows = [
        (path, _shown(leaf, lambda size: str(plain(size))), _shown(leaf, in_words))
        for path, leaf in output_leaves(program)
    ]
    width = 3 if any(row[1] != row[2] for row in rows) else 2
    columns = ("output", "tensor", "in your words")[:width]
    return Table(
        f"outputs ({len(rows)})",
        columns,
        tuple(row[:width] for row in rows),
        code=frozenset(columns),
    )


def output_leaves(program: Program) -> Iterator[tuple[str, Any]]:
    """Yield the specs and numbers of a program's result, each with its path in it."""
    naming = Naming()
    for path, leaf in flat_with_paths(program.output_specs)[0]:
        yield naming.path("", path) or "result", leaf


def _shown(leaf: object, show: Callable[[Any], str]) -> str:
    if isinstance(leaf, TensorSpec):
        return describe_spec(leaf, show)
    return show(leaf) if isinstance(getattr(leaf, "term", leaf), Term) else shown_argument(leaf)


def whence(symbol: Symbol) -> str:
    """Return where a symbol is read, or where it was born."""
    if symbol.sources:
        return ", ".join(source.text() for source in symbol.sources)
    birth = "" if symbol.birth is None else symbol.birth.place or symbol.birth.op
    return ", born at ".join(part for part in (symbol.description, birth) if part)


# -- Tables as plain text, for ``print`` and logs.
def table_text(table: Table) -> str:
    """Return the table in columns of one width, numbers to the right.

    >>> print(
    ...     table_text(
    ...         Table("sizes", ("name", "n"), (("a", "1"), ("bc", "10")), numbers=frozenset({"n"}))
    ...     )
    ... )
    sizes
    name   n
    a      1
    bc    10
    """
    rows = [table.columns, *table.rows]
    widths = [max(len(row[index]) for row in rows) for index in range(len(table.columns))]
    lines = [
        "  ".join(
            cell.rjust(width) if column in table.numbers else cell.ljust(width)
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([table.title, *lines] if table.title else lines)


# -- A trace as HTML for notebooks. All text of the user's program is escaped.
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
