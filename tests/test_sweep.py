"""The sweep of architectures at its smallest: eager's results, in few programs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import attrs
import pytest
import torch

from tests.sweep import libraries
from tests.sweep.__main__ import SMOKE, main
from tests.sweep.library_programs import LibraryProgram, rows


@pytest.mark.slow
@pytest.mark.smoke
def test_a_few(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found = main(["--smoke", "--out", str(tmp_path)]).tables[0].rows
    assert {row[0] for row in found} == set(SMOKE)
    assert {row[2] for row in found if row[0] != "mamba"} == {"right"}
    assert {row[2] for row in found if row[0] == "mamba"} == {"as a compiler sees it"}
    assert all((row[4], row[5]) == (0, "batch length") for row in found)
    assert all(isinstance(row[3], int) and row[3] <= 3 for row in found)
    assert list(tmp_path.glob("sweep-*.json"))


LIBRARIES_HERE = [
    name for name in libraries.LIBRARIES if importlib.util.find_spec(name) is not None
]


@pytest.mark.smoke
@pytest.mark.parametrize(
    "library", LIBRARIES_HERE or [pytest.param("", marks=pytest.mark.skip("none is installed"))]
)
def test_a_few_programs_of_a_library(library: str) -> None:
    """No call gives another result than eager's; a library that is made for another torch says
    so.
    """
    programs, whole = libraries.main(["--smoke", "--only", library]).tables
    (_, version, count, *_, wrong) = whole.rows[0]
    if str(version).startswith("not here"):
        pytest.skip(f"{library} is {version}")
    assert count == libraries.SMOKE
    assert wrong == 0
    assert all(row[3] in ("right", "eager", "not here") for row in programs.rows), programs.rows


def test_a_library_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(libraries.LIBRARIES, "no_such_library", lambda: iter(()))
    _, whole = libraries.main(["--only", "no_such_library"]).tables
    name, version, *counts = whole.rows[0]
    assert name == "no_such_library"
    assert str(version).startswith("not here: ModuleNotFoundError")
    assert counts == [0, 0, 0, 0, 0]


@pytest.mark.slow
def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that differs from call to call stands for one that is compiled wrongly."""
    calls = iter(range(1000))
    changing = lambda x: x + float(torch.tensor(next(calls)))  # noqa: E731
    program = LibraryProgram("changing", lambda: changing, rows, trains=False)
    assert libraries.judge(program, "no_grad", 40).outcome == "wrong"
    program = LibraryProgram("failing", lambda: lambda x: x.no_such_method(), rows, trains=False)
    assert libraries.judge(program, "no_grad", 40).outcome == "not here"
    program = LibraryProgram("plain", lambda: torch.nn.Linear(8, 3), rows)
    for mode in libraries.MODES:
        assert attrs.astuple(libraries.judge(program, mode, 40))[:5] == ("right", 12, 2, 0, 0)
