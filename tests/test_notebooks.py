"""Every notebook executes, and what is committed of it is the output of a run without errors."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest

from tests.discovery import REPOSITORY
from tests.notebooks import execute, notebooks, read

NOTEBOOKS = [pytest.param(path, id=path.stem) for path in notebooks()]


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_committed_outputs(path: Path) -> None:
    cells = [cell for cell in read(path).cells if cell.cell_type == "code" and cell.source.strip()]
    assert cells, "a notebook without code"
    for cell in cells:
        assert cell.execution_count is not None, (
            f"committed without having been run:\n{cell.source}"
        )
        errors = [output for output in cell.outputs if output.output_type == "error"]
        assert not errors, f"committed with an error output:\n{cell.source}\n{errors}"
    counts = [cell.execution_count for cell in cells]
    assert counts == sorted(counts), (
        "committed with cells run out of order: `make notebooks` runs them from the top"
    )


TIMED = {"03_one_graph_for_a_range", "04_what_will_it_cost"}
"""Notebooks that print times, which are others in each run."""


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS)
def test_executes(path: Path) -> None:
    committed = read(path)
    executed = execute(read(path))
    if path.stem in TIMED or not _as_pinned("torch", "transformers"):
        return
    for before, after in zip(committed.cells, executed.cells, strict=True):
        assert _texts(before) == _texts(after), (
            f"stale output (`make notebooks` writes it anew) of:\n{before.source}"
        )


def _texts(cell: Any) -> list[str]:
    """Return the text that a cell printed, in however many parts, and its answers; pictures and
    HTML are left out.
    """
    outputs = cell.get("outputs", ())
    answers = [
        each.data.get(kind, "")
        for each in outputs
        if "data" in each
        for kind in ("text/plain", "text/markdown")
    ]
    return ["".join(each.text for each in outputs if "text" in each), *answers]


def _as_pinned(*packages: str) -> bool:
    """Whether packages have the versions that the outputs were made with: their messages and lines
    are among them.
    """
    pinned = dict(
        line.split("==")
        for line in (REPOSITORY / "constraints.txt").read_text().split()
        if "==" in line
    )
    return all(
        importlib.metadata.version(each).partition("+")[0] == pinned[each] for each in packages
    )
