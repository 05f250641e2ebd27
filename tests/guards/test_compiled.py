"""The compiled modules of guards: up to date, really in use, and their sources pass the same tests
interpreted.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import guards
from tests.conftest import is_compiled

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for path in sorted((ROOT / "guards").rglob("*.py")) if is_compiled(path)]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_is_compiled_is_used_and_new(source: Path) -> None:
    module = importlib.import_module(".".join(source.relative_to(ROOT).with_suffix("").parts))
    assert str(module.__file__).endswith(tuple(EXTENSION_SUFFIXES))
    compiled = next(
        path for ending in EXTENSION_SUFFIXES if (path := source.with_suffix(ending)).exists()
    )
    assert compiled.stat().st_mtime >= source.stat().st_mtime, (
        f"{source.name} changed after it was compiled: make setup"
    )


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_is_compiled_has_its_docstrings(source: Path) -> None:
    """By itself mypyc writes signatures only: guards/docstrings.c adds the texts, to methods and
    properties too.
    """
    placed = importlib.import_module("guards.docstrings")
    assert placed.placed == placed.rows > 200
    module = importlib.import_module(".".join(source.relative_to(ROOT).with_suffix("").parts))
    tree = ast.parse(source.read_text(encoding="utf-8"))
    assert inspect.getdoc(module) == ast.get_docstring(tree)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        found = getattr(module, node.name)
        assert (inspect.getdoc(found) if found.__doc__ else None) == ast.get_docstring(node), (
            node.name
        )
        for inner in node.body if isinstance(node, ast.ClassDef) else []:
            text = ast.get_docstring(inner) if isinstance(inner, ast.FunctionDef) else None
            if text is not None:
                assert inspect.getdoc(getattr(found, inner.name)) == text, (
                    f"{node.name}.{inner.name}"
                )


def test_signatures_are_kept() -> None:
    assert list(inspect.signature(guards.prove).parameters) == ["query", "ranges", "assume"]


SOME = (
    "deciders",
    "domains",
    "facts",
    "sets/test_codegen.py",
    "terms/test_fold.py",
    "terms/test_tape.py",
    "text",
)
"""Tests of what mypyc's integers, floats and classes may compute in another way; 70 s of a
processor, interpreted.
"""


@pytest.mark.slow
@pytest.mark.skipif(not SOURCES, reason="nothing is compiled here: all tests ran interpreted")
@pytest.mark.parametrize(
    "tested", [SOME, pytest.param(("",), marks=pytest.mark.nightly)], ids=["some", "all"]
)
def test_sources_pass_the_same_tests(tested: tuple[str, ...]) -> None:
    tests = [f"tests/guards/{each}" for each in tested]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not nightly",
        "guards",
        *tests,
    ]
    environment = {**os.environ, "SYMSHAPE_INTERPRETED": "1"}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.skipif(not SOURCES, reason="nothing is compiled here")
def test_interpreted_on_request() -> None:
    code = (
        "import importlib, guards; decide = importlib.import_module('guards.asking.queries');"
        "print(decide.__file__, guards.prove('(s + 7) // 8 * 8 >= s'))"
    )
    environment = {**os.environ, "SYMSHAPE_INTERPRETED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    path, answer = done.stdout.split()
    assert path.endswith("queries.py")
    assert answer == "True"
