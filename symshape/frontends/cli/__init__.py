"""The command line: ``symshape prove``, ``trace``, ``explain``, ``report``, ``cost``, ``plan``,
``cache`` and more.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the command line names; this needs the extra ``cli``."""
    try:
        from symshape.frontends.cli.commands import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("typer", "rich"):
            raise
        sys.exit(f"symshape: the command line needs {error.name}: pip install 'symshape[cli]'")
    app()
