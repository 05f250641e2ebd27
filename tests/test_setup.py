"""setup.py: what it cannot compile it says, and leaves interpreted; asked to compile, it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.discovery import REPOSITORY

# Other releases of mypyc, as setup.py may meet them: gone, with another interface, refusing our
# types, and one whose C does not compile.
MYPYC = {
    "gone": "raise ImportError('no mypycify here')",
    "another interface": "def mypycify(paths): ...",
    "refuses": "def mypycify(*args, **options): raise SystemExit(1)",
    "writes no C": """
from pathlib import Path
from setuptools import Extension
def mypycify(paths, **options):
    Path("build").mkdir()
    Path("build/wrong.c").write_text("this is no C")
    return [Extension("guards.compiled", ["build/wrong.c"])]
""",
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, tmp_path)
    shutil.copytree(
        REPOSITORY / "guards",
        tmp_path / "guards",
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    return tmp_path


def build(copy: Path, mypyc: str, wanted: str) -> subprocess.CompletedProcess[str]:
    """What `make` runs, with this text as mypyc/build.py."""
    fake = copy / "fake" / "mypyc"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("")
    (fake / "build.py").write_text(mypyc)
    environment = {**os.environ, "SYMSHAPE_COMPILE": wanted, "PYTHONPATH": str(fake.parent)}
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    return subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", MYPYC)
def test_what_cannot_be_compiled_is_told_and_runs(copy: Path, how: str) -> None:
    done = build(copy, MYPYC[how], "")
    assert done.returncode == 0, done.stderr
    assert "guards stays interpreted: " in done.stderr
    assert not list(copy.glob("guards/**/*.so"))
    code = (
        "import guards, sys; print(guards.__file__, guards.prove('x >= 0'), "
        "'guards.docstrings' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [str(copy / "guards" / "__init__.py"), "True", "False"]


@pytest.mark.slow
@pytest.mark.parametrize("how", MYPYC)
def test_asked_to_compile_it_fails(copy: Path, how: str) -> None:
    done = build(copy, MYPYC[how], "1")
    assert done.returncode != 0
    assert not list(copy.glob("guards/**/*.so"))


def test_nothing_is_compiled_on_request(copy: Path) -> None:
    done = build(copy, "raise AssertionError('asked')", "0")
    assert (done.returncode, done.stderr) == (0, "")
