"""The Makefile's venvs: one for each Python and torch that is named, and what is compiled for one
of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
OURS = {
    name: text
    for name, text in os.environ.items()
    if name not in ("MAKEFLAGS", "MFLAGS", "TORCH", "VENV")
}
"""The environment without what a ``make`` around this test was told."""
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "setup.py"):
        shutil.copy(REPOSITORY / name, tmp_path)
    return tmp_path


def _would_run(folder: Path, *given: str) -> str:
    """Return the commands that ``make`` would run."""
    run = subprocess.run(
        ["make", "-n", *given], cwd=folder, env=OURS, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def _venv(commands: str) -> str:
    (line,) = [each for each in commands.splitlines() if "--no-build-isolation" in each]
    return line.partition('"')[2].partition("/bin/python")[0]


@pytest.mark.parametrize(
    ("given", "venv"),
    [
        ((), ".venv"),
        (("TORCH=2.14.1",), ".venv-torch-2.14.1"),
        (("PYTHON=python3.13",), ".venv-python3.13"),
        (("PYTHON=/somewhere/python3.12", "TORCH=2.11.0"), ".venv-python3.12-torch-2.11.0"),
        (("VENV=mine", "TORCH=2.11.0"), "mine"),
    ],
)
def test_a_venv_for_each_choice(folder: Path, given: tuple[str, ...], venv: str) -> None:
    assert _venv(_would_run(folder, "install", *given)) == venv


def test_another_torch_takes_the_place_of_the_pin(folder: Path) -> None:
    (folder / "v").mkdir()
    commands = _would_run(folder, "install", "TORCH=2.99.1", "VENV=v")
    (pins,) = [each for each in commands.splitlines() if "sed" in each]
    subprocess.run(["sh", "-c", pins], cwd=folder, check=True)
    made, before = (
        (folder / each).read_text().splitlines()
        for each in ("v/constraints.txt", "constraints.txt")
    )
    assert "-c v/constraints.txt --no-build-isolation" in commands
    assert set(made) - set(before) == {"torch==2.99.1"}
    assert [each.partition("==")[0] for each in made] == [
        each.partition("==")[0] for each in before
    ]


def test_without_a_choice_the_pins_are_those_of_the_repository(folder: Path) -> None:
    assert "-c constraints.txt --no-build-isolation" in _would_run(folder, "install")


def test_a_python_that_is_named_is_not_replaced_by_another(folder: Path) -> None:
    run = subprocess.run(
        ["make", "begin", "PYTHON=no-such-python"],
        cwd=folder,
        env=OURS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0
    assert "no Python 3.11+ found" in run.stderr


def test_what_is_compiled_for_another_venv_is_compiled_again(folder: Path) -> None:
    venv = folder / ".venv"
    (folder / "build").mkdir()
    venv.mkdir()
    # in the order in which they are made
    for stamp in ("begun", "installed", "guards", "compiled"):
        (venv / f".symshape-{stamp}").touch()
    (folder / "build" / ".built-for").write_text(".venv\n")
    assert "build_ext" not in _would_run(folder, "setup")
    (folder / "build" / ".built-for").write_text(".venv-torch-2.14.1\n")
    assert _would_run(folder, "setup").count("build_ext") == 2
