"""Executing notebooks. `python -m tests.notebooks notebooks/01_guards_of_a_model.ipynb` writes the
outputs back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.discovery import REPOSITORY

FOLDER = REPOSITORY / "notebooks"
SECONDS_A_CELL = 240


def notebooks() -> list[Path]:
    """All notebooks of the project, in their order."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> nbformat.NotebookNode:
    """A notebook as data, validated."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def execute(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Run every cell in order in a fresh kernel of this Python, in the notebooks' folder; the
    notebook with outputs.

    Raises: `nbclient.exceptions.CellExecutionError` at the first cell that raises.
    """
    # This environment's kernel, whatever kernels the user has installed under the same name.
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    client = NotebookClient(
        notebook,
        timeout=SECONDS_A_CELL,
        kernel_name="python3",
        store_widget_state=False,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute()
    return notebook


def main(argv: Sequence[str] | None = None) -> int:
    """Execute the notebooks named and write them back with their outputs."""
    for word in sys.argv[1:] if argv is None else argv:
        path = Path(word)
        notebook = execute(read(path))
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # times of day: a new diff for each run
            # a widget is nothing without its kernel: the tables beside it stay
            for output in cell.get("outputs", ()):
                output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
        nbformat.write(notebook, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
