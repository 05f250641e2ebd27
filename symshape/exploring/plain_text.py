"""Tables as plain text, for ``print`` and logs."""

from __future__ import annotations

from symshape.exploring.tables import Table


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
