"""The compiled modules of guards: up to date, really in use, and their sources pass the same tests interpreted."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from tests.conftest import is_compiled

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for path in sorted((ROOT / "guards").rglob("*.py")) if is_compiled(path)]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_is_compiled_is_used_and_new(source: Path) -> None:
    module = importlib.import_module(".".join(source.relative_to(ROOT).with_suffix("").parts))
    assert str(module.__file__).endswith(tuple(EXTENSION_SUFFIXES))
    compiled = next(path for ending in EXTENSION_SUFFIXES if (path := source.with_suffix(ending)).exists())
    assert compiled.stat().st_mtime >= source.stat().st_mtime, (
        f"{source.name} changed after it was compiled: make setup"
    )


@pytest.mark.skipif(not SOURCES, reason="nothing is compiled here: all tests ran interpreted")
def test_sources_pass_the_same_tests() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "guards", "tests/guards"]
    environment = {**os.environ, "SYMSHAPE_INTERPRETED": "1"}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.skipif(not SOURCES, reason="nothing is compiled here")
def test_interpreted_on_request() -> None:
    code = (
        "import importlib; decide = importlib.import_module('guards.ask.ladder');"
        "print(decide.__file__, decide.prove('(s + 7) // 8 * 8 >= s'))"
    )
    environment = {**os.environ, "SYMSHAPE_INTERPRETED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    path, answer = done.stdout.split()
    assert path.endswith("ladder.py")
    assert answer == "True"
