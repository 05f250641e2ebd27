"""A wheel of this checkout, installed into a fresh environment: for ``test_wheel.py``.

The environment has an interpreter of its own.  It finds torch and the other dependencies where this
Python has them, by a ``.pth`` file; files of that kind found there, such as the one of an editable
install, are not read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import attrs
import pytest

from tests.discovery import REPOSITORY

PACKAGES = ("guards", "meta_fns", "symshape")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
DEPENDENCIES = (
    "attrs",
    "platformdirs",
    "sympy",
    "torch",
    "z3-solver",
    "typer",
    "rich",
    "nbclient",
    "ipykernel",
)


@attrs.frozen
class Installed:
    """A wheel in an environment of its own.

    Attributes:
        wheel: the file.
        environment: the folder.
    """

    wheel: Path
    environment: Path

    @property
    def scripts(self) -> Path:
        """The folder of commands."""
        return self.environment / ("Scripts" if os.name == "nt" else "bin")

    @property
    def files(self) -> set[str]:
        """The paths of all files of the three packages in the wheel."""
        names = zipfile.ZipFile(self.wheel).namelist()
        return {name for name in names if name.partition("/")[0] in PACKAGES}

    def run(
        self,
        *words: str | Path,
        folder: Path,
        variables: Mapping[str, str] | None = None,
        timeout: float = 600,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment, outside the checkout and without the variables that
        tests are run with.
        """
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "SYMSHAPE"))
        }
        return subprocess.run(
            [str(self.scripts / words[0]), *map(str, words[1:])],
            cwd=folder,
            env={
                **kept,
                "SYMSHAPE_NATIVE": "built",
                "OMP_NUM_THREADS": "1",
                "COLUMNS": "80",
                **(variables or {}),
            },
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def python(self, code: str, *, folder: Path, variables: Mapping[str, str] | None = None) -> str:
        """Return what a program prints.

        Raises:
            AssertionError: it fails.
        """
        ran = self.run("python", "-c", code, folder=folder, variables=variables)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


def sources(folder: Path) -> Path:
    """Copy what a wheel is built of, without anything that was compiled."""
    leave = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    for name in PACKAGES:
        shutil.copytree(REPOSITORY / name, folder / name, ignore=leave)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, folder)
    shutil.copytree(REPOSITORY / "docs" / "errors", folder / "docs" / "errors")
    return folder


def install(folder: Path, *, compiled: str) -> Installed:
    """Build a wheel in this folder and install it; ``compiled`` is what SYMSHAPE_COMPILE says.

    Skips the test where this Python has no setuptools or no pip.
    """
    pytest.importorskip("setuptools")
    pytest.importorskip("pip")
    here = sources(folder / "sources")
    environment = {**os.environ, "SYMSHAPE_COMPILE": compiled}
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert "BuildBackendWarning" not in built.stderr, built.stderr
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "environment", with_pip=False)
    made = Installed(wheel, folder / "environment")
    command = [sys.executable, "-m", "pip", "--python", str(made.scripts / "python"), "install"]
    subprocess.run([*command, "--no-deps", "--no-index", "--quiet", str(wheel)], check=True)
    (site,) = {each.parent for each in (folder / "environment").rglob("symshape/__init__.py")}
    (site.parent / "dependencies.pth").write_text("\n".join(_places()) + "\n")
    return made


def _places() -> list[str]:
    """Return the folders in which this Python finds the dependencies."""
    found = []
    for name in DEPENDENCIES:
        try:
            found.append(str(distribution(name).locate_file("")))
        except PackageNotFoundError:
            continue
    return list(dict.fromkeys(found))
