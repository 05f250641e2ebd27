"""Every notebook executes, and what is committed of it is the output of a run without errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebooks import execute, notebooks, read

NOTEBOOKS = [pytest.param(path, id=path.stem) for path in notebooks()]


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_committed_outputs(path: Path) -> None:
    cells = [cell for cell in read(path).cells if cell.cell_type == "code" and cell.source.strip()]
    assert cells, "a notebook without code"
    for cell in cells:
        assert cell.execution_count is not None, f"committed without having been run:\n{cell.source}"
        errors = [output for output in cell.outputs if output.output_type == "error"]
        assert not errors, f"committed with an error output:\n{cell.source}\n{errors}"
    counts = [cell.execution_count for cell in cells]
    assert counts == sorted(counts), "committed with cells run out of order: `make notebooks` runs them from the top"


@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS)
def test_executes(path: Path) -> None:
    execute(read(path))
