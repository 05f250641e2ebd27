"""The command line: ``symshape prove``, ``trace``, ``explain``, ``report``, ``cost``, ``plan``, ``cache`` and more."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command that the words of the command line name.  What it needs is the extra ``cli``."""
    try:
        from symshape.frontends.cli.commands import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("typer", "rich"):
            raise
        sys.exit(f"symshape: the command line needs {error.name}: pip install 'symshape[cli]'")
    app()
