"""Another package named guards or meta_fns: ``import symshape`` says which one it is, and how to
mend it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.discovery import REPOSITORY


def last_error(*folders: Path | str, code: str = "import symshape") -> str:
    """The last error of a process that finds packages in these folders first; empty where it
    runs.
    """
    paths = [*map(str, folders), str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=folders[0],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if ran.returncode == 0 else ran.stderr[ran.stderr.rindex("\nImportError: ") :]


def install(folder: Path, name: str, source: str, distribution: str) -> None:
    """Make what pip leaves of a distribution with one package."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(source)
    described = folder / f"{distribution}-9.1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 9.1\n"
    )
    (described / "RECORD").write_text(f"{name}/__init__.py,,\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", ["", "raise RuntimeError('no licence')", "import a_package_that_is_not_there"]
)
def test_a_distribution_took_guards(tmp_path: Path, source: str) -> None:
    install(tmp_path, "guards", source, "guards")
    said = last_error(tmp_path)
    assert (
        f"the distribution guards 9.1 has taken the name, at {tmp_path / 'guards' / '__init__.py'}"
        in said
    )
    assert "pip uninstall guards" in said
    assert "pip install --force-reinstall --no-deps symshape" in said


def test_a_distribution_of_another_name_took_meta_fns(tmp_path: Path) -> None:
    install(tmp_path, "meta_fns", "", "numbers-of-everything")
    said = last_error(tmp_path)
    assert (
        "own package 'meta_fns': the distribution numbers-of-everything 9.1 has taken the name"
        in said
    )
    assert "pip uninstall numbers-of-everything" in said


def test_a_distribution_was_installed_over_ours(tmp_path: Path) -> None:
    leave = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(REPOSITORY / "guards", tmp_path / "guards", ignore=leave)
    shutil.copytree(tmp_path / "guards", tmp_path / "whole")
    shutil.rmtree(tmp_path / "guards")
    install(tmp_path, "guards", "raise SyntaxError('of Python 2')", "guards")
    shutil.copytree(tmp_path / "whole" / "terms", tmp_path / "guards" / "terms")
    assert "the distribution guards 9.1 has taken the name" in last_error(tmp_path)


def test_what_is_left_of_ours_is_said_to_be_damaged(tmp_path: Path) -> None:
    """As after ``pip uninstall guards``, which takes our ``__init__.py`` away."""
    (tmp_path / "guards" / "terms").mkdir(parents=True)
    (tmp_path / "guards" / "terms" / "term.py").write_text("")
    (tmp_path / "guards" / "__init__.py").write_text("")
    said = last_error(tmp_path)
    assert f"files of it are missing or were written over, at {tmp_path / 'guards'}" in said
    assert "pip install --force-reinstall --no-deps symshape" in said


@pytest.mark.parametrize("name", ["guards", "meta_fns"])
def test_a_file_of_the_user_has_the_name(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("x = 1\n")
    said = last_error(tmp_path)
    assert f"{tmp_path / name}.py has the name, and belongs to no installed distribution" in said
    assert "rename that file or folder" in said


def test_one_that_was_imported_before(tmp_path: Path) -> None:
    code = "import sys, types; sys.modules['guards'] = types.ModuleType('guards'); import symshape"
    said = last_error(tmp_path, code=code)
    assert "cannot use its own package 'guards': a module without a file has the name" in said


@pytest.mark.slow
def test_our_own_are_no_others(tmp_path: Path) -> None:
    assert last_error(tmp_path) == ""
