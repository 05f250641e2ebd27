"""Tables as HTML for notebooks: every text escaped, plain tags, so that they read well where styles
are stripped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_CELL = ' style="text-align:left"'  # notebooks align cells to the right


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    caption: str = "",
    code: Iterable[str] = (),
) -> str:
    """A table of texts; the columns named in ``code`` are set as code.

    >>> print(table(["guard"], [["s0 < 2"]], code=["guard"]))
    <table><thead><tr><th ...>guard</th></tr></thead><tbody><tr><td
    ...><code>s0 &lt; 2</code></td></tr></tbody></table>
    """
    coded = [column in set(code) for column in columns]
    head = "".join(f"<th{_CELL}>{escape(column)}</th>" for column in columns)
    cells = (
        "".join(_cell(text, is_code) for text, is_code in zip(row, coded, strict=True))
        for row in rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    title = f"<caption{_CELL}>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str, is_code: bool) -> str:
    shown = f"<code>{escape(text)}</code>" if is_code and text else escape(text)
    return f"<td{_CELL}>{shown}</td>"
