"""The page of an error or of a reason of refusal: ``symshape error SYM204``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from symshape.errors import PAGES
from symshape.frontends.cli.arguments import USAGE
from symshape.store.store_errors import EntryError  # noqa: F401 - has a page too

FOLDERS = (Path(__file__).with_name("error_pages"), Path(__file__).parents[3] / "docs" / "errors")
"""The folder of the pages in an installed package (``setup.py`` copies them), and in a checkout."""


def error(
    code: Annotated[str, typer.Argument(help="The code at the end of a message, such as SYM204.")],
) -> None:
    """Print the page of an error, or of a reason of refusal.

    The page has a program that raises the error, why, and the mended program.

    Example: symshape error SYM204
    """
    text = page_of(code)
    if text is None:
        known = (
            f"there is no code {code}"
            if code.upper() not in PAGES
            else "the pages of the docs are not installed"
        )
        typer.echo(f"symshape error: {known}; codes are SYM101 to {max(PAGES)}", err=True)
        raise typer.Exit(USAGE)
    typer.echo(text)


def page_of(code: str) -> str | None:
    """Return the page of a code as Markdown, of a reason its section; None where there is no such
    code or page.
    """
    name, _, anchor = PAGES.get(code.upper(), "").partition("#")
    path = next((found for each in FOLDERS if (found := each / name).is_file()), None)
    if path is None:
        return None
    text = path.read_text(encoding="utf-8")
    if not anchor:
        return text.strip()
    sections = text.split("\n## ")
    return next(
        (f"## {each.strip()}" for each in sections if f"\n`{code.upper()}`\n" in each), None
    )
